"""Stores of every kind, as the tests of rows have them."""

from tests.app.rows.conftest import bucket, key_encryption, objects, open_objects, s3, server

__all__ = ["bucket", "key_encryption", "objects", "open_objects", "s3", "server"]
