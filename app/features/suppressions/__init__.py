"""Suppressions over HTTP, in the SDK and on the command line: list them, and lift them once people have consented."""
