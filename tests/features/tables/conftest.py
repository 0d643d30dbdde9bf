"""Fixtures of the command line."""

from tests.command_line import lethe

__all__ = ["lethe"]
