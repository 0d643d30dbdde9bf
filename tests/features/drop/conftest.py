"""Fixtures of the delete list: a client of the SDK and a gateway."""

from tests.lethe.conftest import client

__all__ = ["client"]
