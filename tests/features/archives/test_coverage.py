"""A restore accepts no tombstones that are older than the archive, whichever copy is given."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import installations
from app.config import Settings
from app.errors import TombstonesDamaged, TombstonesStale
from app.features.archives.restoring import Restored
from app.features.archives.service import Backup
from app.installations import Installation
from app.journal import tombstones

Make = Callable[..., dict[str, Any]]
RestoreWith = Callable[[Path], Restored]


@pytest.fixture
def own(installation: Installation) -> Path:
    return installation.settings.resolved_tombstones()


def test_older_tombstones_are_refused(
    installation: Installation,
    own: Path,
    tmp_path: Path,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore_with: RestoreWith,
    other: Settings,
) -> None:
    """A tombstone file that is older than the backup is refused and nothing is restored; the error states the number of
    missing entries and the date of the first one. The newest file and the file from the time of the backup are
    accepted."""
    new_dataset()
    forget("p1")
    tombstones.record(installation)
    older = shutil.copy(own, tmp_path / "older.jsonl")
    last = list(tombstones.journal(installation).lines())[-1]
    for person in ("p2", "p3", "p4", "p5"):
        forget(person)
    back_up()
    then = shutil.copy(own, tmp_path / "then.jsonl")
    forget("p6")
    tombstones.record(installation)
    with pytest.raises(TombstonesStale) as refused:
        restore_with(older)
    said = refused.value.detail
    assert said.startswith(f"{older} has 2 entries; when the backup was made there were 6")
    assert f"It lacks 4 of them, all since {last.at:%F %T} UTC" in said
    assert not other.data_dir.exists()
    assert restore_with(own).requests.made == 1
    shutil.rmtree(other.data_dir)
    if other.database_url is None:
        assert restore_with(then).requests.made == 0


def test_truncated_tombstones_do_not_cover_the_archive(
    installation: Installation,
    own: Path,
    tmp_path: Path,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    back_up: Callable[[], Backup],
    restore_with: RestoreWith,
) -> None:
    """A tombstone file that is truncated anywhere does not cover the archive. A damaged file is reported as damaged."""
    new_model(new_dataset()["id"])
    work()
    forget("p1")
    work()
    back_up()
    whole = own.read_bytes()
    ends = [place + 1 for place in range(len(whole)) if whole[place : place + 1] == b"\n"]
    cut = tmp_path / "cut.jsonl"
    for size in [0, *ends[:-1], *(end + 40 for end in ends[:-1]), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(TombstonesStale):
            restore_with(cut)
    lines = whole.splitlines(keepends=True)
    for changed in ([*lines[:1], *lines[2:]], [lines[0], lines[2], lines[1], *lines[3:]], [*lines, lines[-1]]):
        cut.write_bytes(b"".join(changed))
        with pytest.raises(TombstonesDamaged):
            restore_with(cut)


def test_rewritten_tombstones_cover_the_archive(
    installation: Installation,
    own: Path,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore_with: RestoreWith,
) -> None:
    """Tombstones that were lost after the backup and rewritten from the database contain every request in the
    database."""
    new_dataset()
    forget("p1")
    tombstones.record(installation)
    back_up()
    own.unlink()
    forget("p2")
    tombstones.record(installation)
    assert restore_with(own).requests.made == 1


def test_another_hosts_file_is_accepted_by_its_content(
    installation: Installation,
    own: Path,
    tmp_path: Path,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore_with: RestoreWith,
) -> None:
    """A tombstone file that another host wrote from the same database is accepted if it contains the archive's last
    request."""
    theirs = installation.settings.model_copy(update={"tombstones": tmp_path / "theirs" / "tombstones.jsonl"})
    (tmp_path / "theirs").mkdir()
    new_dataset()
    forget("p1")
    tombstones.record(installation)
    with installations.opened(theirs) as there:
        tombstones.record(there)
        early = shutil.copy(theirs.resolved_tombstones(), tmp_path / "early.jsonl")
        forget("p2")
        tombstones.record(there)
        back_up()
    with pytest.raises(TombstonesStale, match="lacks all since"):
        restore_with(early)
    assert restore_with(theirs.resolved_tombstones()).requests.made == 0


def test_dropped_lines_do_not_prevent_a_restore(
    installation: Installation,
    own: Path,
    new_dataset: Make,
    forget: Make,
    back_up: Callable[[], Backup],
    restore_with: RestoreWith,
) -> None:
    """If the archive's last tombstone has since been dropped because of its age, the remaining tombstones still cover
    the archive."""
    new_dataset()
    forget("p1")
    tombstones.record(installation)
    made = back_up()
    forget("p2")
    forget("p3")
    tombstones.record(installation)
    assert tombstones.journal(installation).drop(before=made.created_at)
    assert next(tombstones.journal(installation).lines()).kind == "dropped"
    assert restore_with(own).requests.made == 2
