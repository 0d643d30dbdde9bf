"""Fixtures: the command `lethe`."""

from tests.command_line import lethe

__all__ = ["lethe"]
