"""An installation whose weights and rows are in a bucket."""

import shutil
from pathlib import Path

import pytest

from app import installations
from app.config import Settings
from tests.s3.server import Server, s3, server

__all__ = ["s3", "server"]


@pytest.fixture
def bucket(s3: Server) -> str:
    return s3.new_bucket()


@pytest.fixture
def settings(set_up_once: Path, bucket: str, tmp_path: Path) -> Settings:
    """The settings of an installation of the test's own."""
    shutil.copytree(set_up_once, tmp_path / "data")
    settings = Settings(data_dir=tmp_path / "data", store_url=f"s3://{bucket}/lethe", lease_seconds=5.0)
    installations.set_up(settings)
    return settings
