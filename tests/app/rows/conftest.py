"""Stores of every kind: what holds of one is tested on all."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.keys import KeyEncryptionFile
from app.vault.s3 import S3Store
from app.vault.store import FolderStore, ObjectStore
from tests.s3.server import Server, s3, server

__all__ = ["s3", "server"]


@pytest.fixture
def bucket(s3: Server) -> str:
    return s3.new_bucket()


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


@pytest.fixture
def key_encryption(tmp_path: Path) -> KeyEncryptionFile:
    made = KeyEncryptionFile(tmp_path / "installation" / "kek")
    made.create()
    return made
