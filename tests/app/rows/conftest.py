"""Fixtures for rows: stores of objects in a folder, and a gateway to upload to."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from app.config import Settings
from app.keys import KeyEncryptionFile
from app.main import create_app
from app.rows.row_store import RowStore
from app.vault.sealing import SealedStore
from app.vault.store import FolderStore, ObjectStore
from tests.app.rows.at_rest import NUM_SLOTS, ROOM, batch_of
from tests.app.rows.uploaded import PRIVATE, SCHEMA
from tests.conftest import CLASSES


@pytest.fixture
def key_encryption(tmp_path: Path) -> KeyEncryptionFile:
    made = KeyEncryptionFile(tmp_path / "installation" / "kek")
    made.create()
    return made


@pytest.fixture(scope="module")
def data_dir(set_up_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "data"
    shutil.copytree(set_up_once, folder)
    return folder


@pytest.fixture(scope="module")
def client(data_dir: Path) -> Iterator[TestClient]:
    """Start a gateway that accepts bodies of up to a million bytes."""
    chosen = Settings(data_dir=data_dir, max_upload_bytes=1_000_000)
    with TestClient(create_app(chosen), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {chosen.resolved_admin_key_file().read_text().strip()}"
        yield client


@pytest.fixture(scope="module")
def send(client: TestClient) -> Callable[..., httpx.Response]:
    """POST a file as a dataset; the file name determines the file's kind."""

    def post(content: bytes, filename: str, schema: str | None = None) -> httpx.Response:
        form = {"classes": CLASSES} if filename.endswith(".npz") else {"schema": json.dumps(SCHEMA)}
        form |= {} if schema is None else {"schema": schema}
        return client.post("/v1/datasets", data={"name": "people"} | form, files={"file": (filename, content)})

    return post


@pytest.fixture(scope="module")
def held(data_dir: Path) -> Callable[[], tuple[int, list[str]]]:
    """Count the datasets, and list the files that contain rows or uploads."""

    def look() -> tuple[int, list[str]]:
        with closing(sqlite3.connect(data_dir / "lethe.db")) as database:
            (count,) = database.execute("SELECT count(*) FROM datasets").fetchone()
        files = [path for name in ("blocks", "tmp") for path in (data_dir / name).rglob("*") if path.is_file()]
        return count, sorted(map(str, files))

    return look


@pytest.fixture
def refused(send: Callable[..., httpx.Response], held: Callable[[], tuple[int, list[str]]]) -> Callable[..., list[str]]:
    """Assert that a file is refused with this code, that the response contains no value of a record, and that nothing
    from the file is kept. Return the locations of the faults."""

    def check(code: str, content: bytes, filename: str, schema: str | None = None) -> list[str]:
        before = held()
        answer = send(content, filename, schema)
        assert answer.status_code == (413 if code == "upload_too_large" else 422), answer.text
        assert answer.json()["code"] == code, answer.text
        assert not any(value in answer.text for value in PRIVATE)
        assert len(answer.content) < 10_000
        assert held() == before
        return [fault["path"] for fault in answer.json().get("errors", [])]

    return check


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    store = FolderStore(tmp_path / "blocks")
    store.check()
    return store


@pytest.fixture
def new_store(objects: ObjectStore, tmp_path: Path, key_encryption: KeyEncryptionFile) -> Callable[..., RowStore]:
    """Return a function that opens the store as a separate process would."""

    def opened(most_bytes: int = ROOM) -> RowStore:
        sealed = SealedStore(objects, keys=tmp_path / "keys", key_encryption=key_encryption)
        return RowStore(objects, sealed, locks=tmp_path / "locks", most_bytes=most_bytes)

    return opened


@pytest.fixture
def store(new_store: Callable[..., RowStore]) -> RowStore:
    return new_store()


@pytest.fixture
def root(store: RowStore) -> str:
    """Return the root of `ds_1`, whose rows were written in two batches."""
    with store.writing("ds_1") as writer:
        writer.write(*batch_of(5))
        writer.write(*batch_of(NUM_SLOTS - 5, seed=1))
    return writer.root
