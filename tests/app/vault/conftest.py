"""Stores of every kind: what holds of one is tested on all."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.vault.store import FolderStore, ObjectStore, S3Store
from tests.app.rows.conftest import bucket, key_encryption, s3, server

__all__ = ["bucket", "key_encryption", "s3", "server"]


@pytest.fixture(params=["folder", "s3"])
def open_objects(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ObjectStore]:
    """Opens one and the same store, as each process does."""
    if request.param == "folder":
        return lambda: FolderStore(tmp_path / "objects")
    url = f"s3://{request.getfixturevalue('bucket')}/of/ours"
    return lambda: S3Store(url, "objects")


@pytest.fixture
def objects(open_objects: Callable[[], ObjectStore]) -> ObjectStore:
    return open_objects()
