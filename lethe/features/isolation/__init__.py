"""Isolation of a process that reads foreign files."""
