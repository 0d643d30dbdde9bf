"""Fixtures: an installation in a bucket."""

from tests.features.buckets.conftest import bucket, s3, server, settings

__all__ = ["bucket", "s3", "server", "settings"]
