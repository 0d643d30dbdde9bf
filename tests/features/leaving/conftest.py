"""Fixtures of the SDK: a client beside a gateway."""

from tests.lethe.conftest import client, worker

__all__ = ["client", "worker"]
