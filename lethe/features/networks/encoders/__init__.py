"""Examining and running public networks in a separate process, both for the gateway and for a caller's dry run."""
