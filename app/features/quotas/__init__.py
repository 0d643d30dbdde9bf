"""Limit on the number of bytes that a tenant may store."""
