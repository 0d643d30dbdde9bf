"""Fixtures: a gateway to upload to."""

from tests.app.rows.conftest import client, data_dir, held, refused, send

__all__ = ["client", "data_dir", "held", "refused", "send"]
