"""Suppressions over HTTP, in the SDK and on the command line: listed, and lifted once a person has consented."""
