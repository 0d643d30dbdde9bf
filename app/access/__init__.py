"""Access control: callers' permissions, and idempotent responses to repeated calls."""
