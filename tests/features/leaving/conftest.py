"""Fixtures of the SDK: a client of a gateway."""

from tests.lethe.conftest import client, worker

__all__ = ["client", "worker"]
