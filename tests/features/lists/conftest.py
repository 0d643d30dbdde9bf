"""Fixtures of the SDK: a client of a gateway, and a client of a scripted server."""

from tests.lethe.conftest import client, script, scripted_client

__all__ = ["client", "script", "scripted_client"]
