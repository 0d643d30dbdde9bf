"""The isolation of a process that reads foreign files."""
