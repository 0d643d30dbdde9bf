"""Fixtures for archives: an installation to back up, and a place next to it to restore to."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from app.config import Settings
from app.db.tables import Run
from app.features.archives import restoring, service
from app.features.archives.restoring import Restored
from app.features.archives.service import Backup
from app.installations import Installation
from app.journal import tombstones
from tests.command_line import lethe
from tests.postgres.server import Server

__all__ = ["lethe"]


def quietly(status: str, done: int, total: int | None) -> None:
    """Ignore progress."""


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere.key"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def back_up(installation: Installation, archive: Path, key_file: Path) -> Callable[[], Backup]:
    """Return a function that backs the installation up into `archive`."""
    return lambda: service.back_up(installation, archive, key_file=key_file, progress=quietly)


@pytest.fixture
def other(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Return the settings of a not yet existing installation on the same kind of database."""
    folder = tmp_path / "other"
    if kind == "sqlite":
        yield Settings(data_dir=folder, lease_seconds=5.0)
    else:
        postgres: Server = request.getfixturevalue("postgres")
        with postgres.database() as name:
            yield Settings(data_dir=folder, database_url=SecretStr(postgres.url(name)), lease_seconds=5.0)


@pytest.fixture
def restore_with(archive: Path, key_file: Path, other: Settings) -> Callable[[Path | None], Restored]:
    """Return a function that restores `archive` to the settings of `other` with the given tombstones."""
    return lambda file: restoring.restore(other, archive, key_file=key_file, remembered_in=file, progress=quietly)


@pytest.fixture
def restore(installation: Installation, restore_with: Callable[[Path | None], Restored]) -> Callable[[], Restored]:
    """Return a function that restores with all the tombstones of `installation`."""

    def restored() -> Restored:
        tombstones.record(installation)
        return restore_with(installation.settings.resolved_tombstones())

    return restored


@pytest.fixture
def runs_of(installation: Installation) -> Callable[[], list[tuple[str, str | None]]]:
    """Return a function that lists the status and error code of all runs, oldest first."""

    def ended() -> list[tuple[str, str | None]]:
        with installation.database.reading() as session:
            found = session.execute(sa.select(Run.status, Run.error_code).order_by(Run.started_at, Run.id))
            return [(status, error_code) for status, error_code in found]

    return ended
