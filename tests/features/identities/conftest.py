"""Fixtures of the SDK: a client beside a gateway."""

from tests.lethe.conftest import client

__all__ = ["client"]
