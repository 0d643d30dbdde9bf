"""Isolation of processes that read untrusted files."""
