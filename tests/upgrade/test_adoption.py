"""A data folder of revision 0001 does not say whose keys its database knows: they are tried on what is stored."""

import hashlib
import importlib
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
from lethe.proof import conversion
from tests.app.test_installations import Changed
from tests.tables import each

FIXTURE = Path(__file__).with_name("data_folder_0001.tar.xz")
VERSIONS = Path(__file__).parents[2] / "migrations" / "versions"
SHA256 = {
    "0001": "c1f7bc6b23813653820692d3d1fadd4fcd5f708304fb03ddca1203694cfe0a6e",
    "0002": "a53f4abc9f3d7a26a9c7c7a3bf1cad6d51c9ee117b0724a7331271e6dbb546bb",
    "0003": "6fd019eff125f59542e4c55a01a16368c1c67a5a08445f5bed10e01eea00bb9d",
    "0004": "957633c0bf02620bf09ded01c034b8e323b495cf69d2560fc537fcbf250f1982",
    "0005": "0af0ece4c18b19bfd51f975766bd741ef564bf54738cf144318de60d8633a1b5",
    "0006": "bdf8c47558cedbbe265ad330b1d675575b551d4609b61e2087ef26deb2ee4ca0",
    "0007": "f38a9835781bc09b56c11174917f6562b01b5a00f03bd664e72e24105717c9f5",
    "0008": "ce515a0c352ce4047dc67cbda08c1a9a4022acce0a651d3b4d14b4809341a03c",
    "0009": "4424e9e48d4673f5a58a2e04200c63818ce016336ce8cec9a39137b01bca34e1",
    "0010": "b6a3be92cf300b9576340bc3962726a94e6cb28f163d7227018e1502f90f7200",
    "0011": "a3ed43146e50e5879dad9810383f3c0fd33242e64cfe19b89743091d2b5150c1",
    "0012": "6b69fd167380103be51aa903e14549cd1b3eb32b7d928404ba85ae0831401a98",
    "0013": "a6d27b606c3ec5ea4fa6472f628d6fd289e248573d57d237a316dca7d90c55fd",
    "0014": "f1ac95d8e8e03d3110e5c7da5b06c8fac1b7fbe911366b6a860bea3e149bb464",
    "0015": "9db0a6e6b59dd433c57370f3b4e4adc5ebb2cf0ca5a5e3410b35dc6884300c59",
    "0016": "ea9c985bc3fb55337cc530756cce384391e0a093814d5586f9ccfc61acdfe7f8",
    "0017": "06861e48c1f7253c514c73893f65d0fbb5d0bb6ad5b2c7e636a3eaed46b2bb48",
}
"""Released revisions; one that is new is pinned when it is released."""


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
    """A released migration is never changed again: what data folders went through is what new ones go through."""
    files = {file.name[:4]: file for file in VERSIONS.glob("[0-9]*.py")}
    found = {number: hashlib.sha256(files[number].read_bytes()).hexdigest() for number in SHA256}
    assert found == SHA256


@each("mu", [0.0, 1e-6, 0.01, 0.3, 1.0, 8.0, 40.0])
@each("delta", [1e-12, 1e-5, 1 / 11982, 0.1, 0.9])
def test_a_migration_keeps_its_formula(mu: float, delta: float) -> None:
    """Revision 0005 rests on no code that may change, and computes what `lethe.proof.conversion` did."""
    migration = importlib.import_module("migrations.versions.0005_what_is_signed")
    assert migration._epsilon_below(mu, delta) == conversion.gdp_epsilon_below(mu=mu, delta=delta)
