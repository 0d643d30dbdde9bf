"""Backups in the overview."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app.db.tables import InstallationIdentity
from app.features.archives import service as backups
from app.installations import Installation


def test_late_backups_are_reported(installation: Installation, get: Callable[[str], Any], tmp_path: Path) -> None:
    """Backups are reported as late if the last backup is too old or, if there is none, if the installation was set up
    too long ago."""
    assert get("/overview")["backups"] == {"last_at": None, "is_late": False}
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=8)
    with installation.database.writing() as session:
        session.execute(sa.update(InstallationIdentity).values(created_at=long_ago))
    assert get("/overview")["backups"] == {"last_at": None, "is_late": True}
    backups.back_up(installation, tmp_path / "archive", key_file=tmp_path / "key", progress=lambda *_: None)
    found = get("/overview")["backups"]
    assert found["is_late"] is False
    assert datetime.datetime.fromisoformat(found["last_at"]) > long_ago
