"""Fixtures of the whole product: clients of a live gateway, and of a server that misbehaves on purpose."""

from tests.command_line import people
from tests.lethe.conftest import client, script, scripted_client, worker

__all__ = ["client", "people", "script", "scripted_client", "worker"]
