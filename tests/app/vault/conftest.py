"""Stores of objects in a folder; a feature with another kind of store runs the same tests on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.vault.store import FolderStore, ObjectStore
from tests.app.rows.conftest import key_encryption

__all__ = ["key_encryption"]


@pytest.fixture
def open_objects(tmp_path: Path) -> Callable[[], ObjectStore]:
    """Return a function that opens the same store, as each process does."""
    return lambda: FolderStore(tmp_path / "objects")


@pytest.fixture
def objects(open_objects: Callable[[], ObjectStore]) -> ObjectStore:
    return open_objects()
