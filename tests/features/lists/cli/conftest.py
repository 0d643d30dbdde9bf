"""Fixtures of the command line, with a live gateway and a live worker."""

from tests.command_line import lethe, live, people

__all__ = ["lethe", "live", "people"]
