"""Data at rest: objects and texts sealed under individual keys, and the stores that hold them."""
