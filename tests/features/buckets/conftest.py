"""Fixtures: an installation whose weights and rows are in a bucket, and stores of objects there."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app import installations
from app.config import Settings
from app.features.buckets.stores import S3Store
from app.vault.store import ObjectStore
from tests.app.rows.conftest import key_encryption, new_store, root, store
from tests.features.buckets.server import Server, s3, server

__all__ = ["key_encryption", "new_store", "root", "s3", "server", "store"]


@pytest.fixture
def bucket(s3: Server) -> str:
    return s3.new_bucket()


@pytest.fixture
def settings(set_up_once: Path, bucket: str, tmp_path: Path) -> Settings:
    """Return the settings of the test's own installation."""
    shutil.copytree(set_up_once, tmp_path / "data")
    settings = Settings(data_dir=tmp_path / "data", store_url=f"s3://{bucket}/lethe", lease_seconds=5.0)
    installations.set_up(settings)
    return settings


@pytest.fixture
def open_objects(bucket: str) -> Callable[[], ObjectStore]:
    """Return a function that opens the same store again, as a separate process would."""
    return lambda: S3Store(f"s3://{bucket}/of/ours", "objects")


@pytest.fixture
def objects(open_objects: Callable[[], ObjectStore]) -> ObjectStore:
    return open_objects()
