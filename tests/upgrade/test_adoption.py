"""A data folder of revision 0001 does not say whose keys its database knows: they are tried on what is stored."""

import hashlib
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app import installations, key_checks
from app.config import Settings
from app.db.tables import Dataset, Record
from app.rows import records
from lethe.contract.problems import InstallationMismatch
from tests.app.test_installations import Changed

FIXTURE = Path(__file__).with_name("data_folder_0001.tar.xz")
VERSIONS = Path(__file__).parents[2] / "migrations" / "versions"
SHA256 = "c1f7bc6b23813653820692d3d1fadd4fcd5f708304fb03ddca1203694cfe0a6e"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return Settings(data_dir=tmp_path / "data")


def revision(settings: Settings) -> str:
    database = sqlite3.connect(settings.data_dir / "lethe.db")
    try:
        [(found,)] = database.execute("SELECT version_num FROM alembic_version")
        return str(found)
    finally:
        database.close()


def test_keys_that_fit_are_taken(settings: Settings) -> None:
    """With the keys that its data was stored under a database is upgraded, and knows them from then on."""
    installations.set_up(settings)
    with installations.opened(settings) as installation:
        known = key_checks.of_database(installation.database)
    assert known is not None
    assert known.check_values.keys() == {"subject.key", "digest.key", "webhook.key", "signing.jwk", "kek"}
    assert (settings.data_dir / "installation.id").read_text() == known.id
    Changed(settings.data_dir / "keys" / "webhook.key")
    with pytest.raises(InstallationMismatch, match="webhook"):
        installations.set_up(settings)


def test_records_get_check_values(settings: Settings) -> None:
    """Every record that was there has one after the upgrade, which holds, and from then on one without is damaged."""
    installations.set_up(settings)
    with installations.opened(settings) as installation, installation.database.reading() as session:
        datasets = session.scalars(sa.select(Dataset)).all()
        assert len(datasets) == 3
        assert all(dataset.records_have_checks for dataset in datasets)
        assert session.scalars(sa.select(Record)).first()
        assert session.scalars(sa.select(Record).where(Record.check_value.is_(None))).all() == []
        assert [records.first_damaged(session, dataset) for dataset in datasets] == [None, None, None]


@pytest.mark.parametrize("name", ["subject.key", "digest.key", "signing.jwk", "kek"])
def test_a_key_that_does_not_fit_is_refused(settings: Settings, name: str) -> None:
    """A key in which one character is another is named, and nothing is changed until it is put back."""
    changed = Changed(settings.data_dir / "keys" / name)
    with pytest.raises(InstallationMismatch, match=name):
        installations.set_up(settings)
    assert revision(settings) == "0001"
    changed.put_back()
    installations.set_up(settings)
    assert revision(settings) != "0001"


@pytest.mark.parametrize("name", ["subject.key", "digest.key", "webhook.key", "signing.jwk", "kek"])
def test_a_key_that_is_missing_is_not_made(settings: Settings, name: str) -> None:
    """A database that is somebody's gets no new key."""
    (settings.data_dir / "keys" / name).unlink()
    with pytest.raises(InstallationMismatch, match=name):
        installations.set_up(settings)
    assert not (settings.data_dir / "keys" / name).exists()
    assert revision(settings) == "0001"


def test_the_data_folder_of_somebody_else(settings: Settings, tmp_path: Path) -> None:
    """A database that is somebody's is not taken by a data folder of another installation."""
    url = f"sqlite:///{settings.data_dir / 'lethe.db'}"
    other = Settings(data_dir=tmp_path / "other")
    installations.set_up(other)
    (other.data_dir / "installation.id").unlink()
    with pytest.raises(InstallationMismatch):
        installations.set_up(Settings.model_validate({"data_dir": other.data_dir, "database_url": url}))
    assert revision(settings) == "0001"


def test_a_data_folder_that_is_somebodys(settings: Settings) -> None:
    """A database from before the upgrade, beside a data folder that was upgraded, is not taken once more."""
    (settings.data_dir / "installation.id").write_text("ins_other")
    with pytest.raises(InstallationMismatch, match="data folder"):
        installations.set_up(settings)
    assert revision(settings) == "0001"


class Killed(BaseException):
    """Of whoever sets up, in this process."""


@pytest.mark.parametrize(("owner", "name"), [(key_checks.Place, "mark"), (key_checks, "confirm_marked")])
@pytest.mark.parametrize("before", [True, False])
def test_killed_while_it_is_marked_it_goes_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: bool
) -> None:
    """A database that was upgraded, and a data folder that does not say yet that it belongs to it, are put right by the
    next start; from then on the mark must be there."""
    original = getattr(owner, name)

    def dying(*given: Any) -> None:
        if not before:
            original(*given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        with pytest.raises(Killed):
            installations.set_up(settings)
    assert revision(settings) != "0001"
    installations.set_up(settings)
    with installations.opened(settings) as installation:
        known = key_checks.of_database(installation.database)
    assert known is not None
    assert known.is_marked
    (settings.data_dir / "installation.id").unlink()
    with pytest.raises(InstallationMismatch, match="lacks what says"):
        installations.set_up(settings)


def test_what_was_released_stays_as_it_was() -> None:
    """The first migration is never changed again: what data folders went through is what new ones go through."""
    [first] = VERSIONS.glob("0001_*.py")
    assert hashlib.sha256(first.read_bytes()).hexdigest() == SHA256
