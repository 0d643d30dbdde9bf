"""Access: the permissions of callers, and idempotent answers to repeated calls."""
