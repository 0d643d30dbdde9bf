"""Telling a caller's server what became of a request: signed, repeated until it arrives, and sent nowhere else."""
