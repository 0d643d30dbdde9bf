"""Fixtures: an installation in a bucket."""

from tests.s3.conftest import bucket, s3, server, settings

__all__ = ["bucket", "s3", "server", "settings"]
