"""The commands `lethe backup` and `lethe restore`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app import installations
from app.access import service as access
from app.config import Settings
from app.features.people import users
from app.features.people.tables import User
from app.installations import Installation
from app.journal import tombstones
from lethe.features.people.contract import Role
from tests.command_line import Lethe, refused
from tests.stored import flipped


@pytest.fixture
def made(
    installation: Installation,
    lethe: Lethe,
    admin_key: str,
    new_dataset: Callable[..., Any],
    forget: Callable[..., Any],
    monkeypatch: Any,
) -> Path:
    """Create an archive `archive` that opens with `key` and contains a user who can log in and an invited user. One
    request is made after the backup, and the settings name the place to restore to."""
    new_dataset()
    with installation.database.reading() as session:
        admin = access.caller_with(session, access.find(session, admin_key))
    with installation.database.writing(by=admin.actor) as session:
        users.create(session, name="Ann", email="ann@example.com", role=Role.VIEWER, by=admin)
        maria, _ = users.create(session, name="Maria", email="maria@example.com", role=Role.OFFICER, by=admin)
        users.accept(session, maria, password_hash="$argon2id$")
    monkeypatch.setenv("LETHE_DATA_DIR", str(installation.settings.data_dir))
    ended = lethe("backup", "archive", "--key-file", "key")
    assert (ended.code, ended.err) == (0, ""), ended.err
    assert "1 datasets" in ended.out
    forget("p1")
    tombstones.record(installation)
    monkeypatch.setenv("LETHE_DATA_DIR", "restored")
    return installation.settings.resolved_tombstones()


def test_restore_prints_a_summary(made: Path, lethe: Lethe) -> None:
    """The restore command prints the number of requests made after the backup, the remaining work, and how many people
    can log in. Open invitations become void."""
    ended = lethe("restore", "archive", "--key-file", "key", "--tombstones", made)
    assert (ended.code, ended.err) == (0, ""), ended.err
    assert "1 requests came after that" in ended.out
    assert "Can log in as of the backup: officer 1." in ended.out
    with installations.opened(Settings(data_dir=Path("restored"))) as again:
        assert set(again.rows.stored())
        with again.database.reading() as session:
            people = session.scalars(sa.select(User)).all()
        assert {(one.name, one.invitation_hash, one.password_hash) for one in people} == {
            ("Ann", None, None),
            ("Maria", None, "$argon2id$"),
        }


def test_a_restore_needs_a_tombstone_option(made: Path, lethe: Lethe) -> None:
    """A restore needs exactly one tombstone option. The option `--no-tombstones` also requires `--lost-versions` and
    causes a warning."""
    refused(lethe("restore", "archive", "--key-file", "key"), "backup_refused")
    refused(lethe("restore", "archive", "--key-file", "key", "--tombstones", made, "--no-tombstones"), "backup_refused")
    assert not Path("restored").exists()
    refused(lethe("restore", "archive", "--key-file", "key", "--no-tombstones"), "backup_refused")
    ended = lethe("restore", "archive", "--key-file", "key", "--no-tombstones", "--lost-versions", "0")
    assert ended.code == 0, ended.err
    assert "IS BACK" in ended.out


@pytest.mark.parametrize("place", [40, 0, -1])
def test_a_damaged_page_of_the_vault_stops_backup_and_rotation(
    place: int, installation: Installation, lethe: Lethe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a key or the end of a vault page has been changed, backup and rotation each name the page in a one-line error
    and write nothing. Both work once the page is restored."""
    sealed = installation.vault.seal(b"case-7")
    monkeypatch.setenv("LETHE_DATA_DIR", str(installation.settings.data_dir))
    [page] = (installation.settings.data_dir / "vault").glob("*.page")
    right = page.read_bytes()
    damaged = right[:-1] if place < 0 else flipped(right, place)
    page.write_bytes(damaged)
    for words in (["backup", "archive", "--key-file", "key"], ["rotate-key"]):
        ended = lethe(*words)
        refused(ended, "sealed_text_damaged")
        assert f"{page} is damaged; put it back" in ended.err
    assert not list(Path().glob("*archive*"))
    assert page.read_bytes() == damaged
    page.write_bytes(right)
    assert lethe("rotate-key").code == 0
    assert lethe("backup", "archive", "--key-file", "key").code == 0
    assert installation.vault.open(sealed) == b"case-7"
