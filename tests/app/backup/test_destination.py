from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.backup import restoring, tombstones
from app.backup.restoring import Restored
from app.backup.service import Backup
from app.config import Settings
from app.errors import BackupRefused
from app.installations import Installation
from tests.app.backup.conftest import quietly

Make = Callable[..., dict[str, Any]]


def test_it_is_restored_where_nothing_is(
    installation: Installation,
    archive: Path,
    key_file: Path,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore: Callable[[], Restored],
    other: Settings,
) -> None:
    """Over an installation, over part of one, or beside other tombstones, nothing is restored."""
    new_dataset()
    forget("p1")
    back_up()
    tombstones.record(installation)
    own = installation.settings.resolved_tombstones()
    for settings, why in (
        (installation.settings, "is not empty"),
        (
            installation.settings.model_copy(update={"data_dir": archive.parent / "x", "tombstones": own}),
            "database|not empty",
        ),
        (other.model_copy(update={"tombstones": archive}), "There are tombstones at"),
    ):
        if settings.database_url is None and settings.data_dir.name == "x":
            settings = settings.model_copy(update={"store_url": str(installation.settings.data_dir)})
        with pytest.raises(BackupRefused, match=why):
            restoring.restore(settings, archive, key_file=key_file, remembered_in=own, progress=quietly)
    with pytest.raises(BackupRefused, match="no key file"):
        restoring.restore(other, archive, key_file=archive.parent / "no", remembered_in=own, progress=quietly)
    restore()


def test_empty_folders_are_in_nobodys_way(
    new_dataset: Make, back_up: Callable[[], Backup], restore: Callable[[], Restored], other: Settings
) -> None:
    """A data folder in which volumes are mounted that are empty is one in which nothing is."""
    new_dataset()
    back_up()
    for name in ("keys", "sealing"):
        (other.data_dir / name).mkdir(parents=True, mode=0o700)
    assert restore().num_datasets == 1
