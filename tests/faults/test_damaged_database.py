"""A database file that SQLite did not write in its current form is damaged, and none of its contents are used."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import installations
from app.config import Settings
from app.installations import Installation
from app.main import create_app
from lethe.contract.problems import DatabaseDamaged
from tests.conftest import FORM, npz
from worker import runner

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def damaged(settings: Settings, admin_key: str) -> Settings:
    """Return an installation in which, as after a disk error, one bit of a person's record is flipped in the table but
    not in the index."""
    with TestClient(create_app(settings)) as gateway, installations.opened(settings) as installation:
        gateway.headers["Authorization"] = f"Bearer {admin_key}"
        uploaded = gateway.post("/v1/datasets", data=FORM, files={"file": ("people.npz", npz())})
        assert uploaded.status_code == 201
        reference = installation.keys.subject_ref("ten_default", "p3").encode()
        installation.database.scrub()
    file = settings.data_dir / "lethe.db"
    content = bytearray(file.read_bytes())
    place = content.index(reference) + 10
    content[place] ^= 1
    file.write_bytes(bytes(content))
    return settings


def pages_gone(file: Path) -> None:
    with file.open("r+b") as pages:
        pages.seek(8192)
        pages.write(b"\xff" * (file.stat().st_size - 8192))


def test_a_flipped_bit_in_an_owner_id_prevents_every_start(damaged: Settings) -> None:
    """If a bit is flipped in the value that names a row's owner, every start detects the damage and fails."""
    for _ in range(2):
        with pytest.raises(DatabaseDamaged):
            installations.set_up(damaged)


def test_a_damaged_file_is_not_vacuumed(damaged: Settings) -> None:
    """A damaged page is detected before the database file is vacuumed, and the file is left unchanged."""
    database = sqlite3.connect(damaged.data_dir / "lethe.db")
    database.execute("PRAGMA user_version=0")
    database.close()
    before = (damaged.data_dir / "lethe.db").read_bytes()
    with installations.opened(damaged) as installation, pytest.raises(DatabaseDamaged):
        installation.database.scrub()
    assert (damaged.data_dir / "lethe.db").read_bytes() == before


def test_all_calls_are_refused_after_damage(damaged: Settings, admin_key: str) -> None:
    """A gateway and a worker each detect the damage, and from then on refuse all calls and runs."""
    headers = {"Authorization": f"Bearer {admin_key}"}
    with installations.opened(damaged) as installation, pytest.raises(DatabaseDamaged):
        installation.database.check()
    with TestClient(create_app(damaged), headers=headers, raise_server_exceptions=False) as gateway:
        answers = [gateway.post("/v1/deletion-requests", json={"subject_id": "p3"}), gateway.get("/readyz")]
        assert {(one.status_code, one.json()["code"]) for one in answers} == {(503, "database_damaged")}
        assert all(int(one.headers["retry-after"]) > 0 for one in answers)
    with installations.opened(damaged) as installation:
        assert not runner.run_next(installation, worker="test")


def test_reading_a_damaged_page_returns_503(settings: Settings, installation: Installation, admin_key: str) -> None:
    """Reading a damaged page of the database returns 503 rather than 500, and so do all later calls."""
    installation.database.scrub()
    installation.database.close()
    pages_gone(settings.data_dir / "lethe.db")
    headers = {"Authorization": f"Bearer {admin_key}"}
    with TestClient(create_app(settings), headers=headers, raise_server_exceptions=False) as gateway:
        answers = [gateway.get("/v1/models"), gateway.get("/readyz"), gateway.get("/v1/deletion-requests")]
    assert {(one.status_code, one.json()["code"]) for one in answers} == {(503, "database_damaged")}
