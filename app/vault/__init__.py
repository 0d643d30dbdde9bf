"""Bytes at rest, each sealed under a key of its own, and the stores that hold them."""
