"""The bound on the bytes that a tenant may store."""
