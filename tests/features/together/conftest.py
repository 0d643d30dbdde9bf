"""Fixtures of the whole product: a client of a server that misbehaves on purpose."""

from tests.lethe.conftest import script, scripted_client

__all__ = ["script", "scripted_client"]
