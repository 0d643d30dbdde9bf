"""Fixtures for the command line, alone and with a live gateway and worker."""

from tests.command_line import certified, lethe, live, people

__all__ = ["certified", "lethe", "live", "people"]
