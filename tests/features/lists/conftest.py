"""Fixtures of the SDK: a client beside a gateway, and one beside a server that says what a test wants."""

from tests.lethe.conftest import client, script, scripted_client

__all__ = ["client", "script", "scripted_client"]
