"""Fixtures of the SDK: a client of a gateway, and a table of people."""

from tests.command_line import people
from tests.lethe.conftest import client, worker

__all__ = ["client", "people", "worker"]
