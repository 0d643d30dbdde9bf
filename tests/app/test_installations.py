"""Keys, stores and database must belong to one installation; otherwise startup and all calls are refused."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app import accounting_main, installations, key_checks
from app.config import Settings
from app.db import migrate
from app.db.tables import ApiKey, DeletionRequest
from app.installations import Installation
from app.keys import KeyEncryptionFile
from app.vault.sealing import SealedStore
from lethe.contract.problems import InstallationMismatch
from tests.app.deletion import people
from tests.faults import processes
from tests.faults.processes import CELERY_WORKER, LETHE, environment_of
from worker import runner

Make = Callable[..., dict[str, Any]]
OF_ANOTHER_VERSION = (
    "database_unreadable: The database is of another version of Lethe (schema 9999), which this version does not "
    "support: run the version that made it, or begin with an empty database and data folder."
)
KEYS = ("subject.key", "webhook.key", "signing.jwk", "kek")


class Changed:
    """Change one character of a key file until the block ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._was = path.read_text()
        place = self._was.index('"d": "') + 8 if path.suffix == ".jwk" else 5
        path.write_text(f"{self._was[:place]}{'a' if self._was[place] != 'a' else 'b'}{self._was[place + 1 :]}")

    def put_back(self) -> None:
        self.path.write_text(self._was)


def elsewhere(settings: Settings, folder: Path) -> Settings:
    """Return settings with the same database and another data folder."""
    return settings.model_copy(update={"data_dir": folder, "database_url": SecretStr(settings.resolved_database_url())})


def keys_in_force(installation: Installation) -> int:
    with installation.database.engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(ApiKey.__table__)) or 0


@pytest.mark.parametrize("is_there", [False, True])
def test_an_empty_data_folder_with_an_existing_database_is_refused(
    installation: Installation, tmp_path: Path, is_there: bool
) -> None:
    """Starting with an existing database and an empty data folder is refused, and no file is created."""
    before, other = keys_in_force(installation), elsewhere(installation.settings, tmp_path / "other")
    if is_there:
        other.data_dir.mkdir(mode=0o700)
    with pytest.raises(InstallationMismatch, match=r"subject\.key is missing"):
        installations.set_up(other)
    assert list(other.data_dir.rglob("*")) == []
    assert other.data_dir.exists() is is_there
    assert keys_in_force(installation) == before


def test_the_data_folder_of_another_installation_is_refused(installation: Installation, tmp_path: Path) -> None:
    """Starting with the data folder of another installation is refused, and the database is not changed."""
    own = Settings(data_dir=tmp_path / "own")
    installations.set_up(own)
    before = keys_in_force(installation)
    with pytest.raises(InstallationMismatch, match=r"subject\.key"):
        installations.set_up(elsewhere(installation.settings, own.data_dir))
    with pytest.raises(InstallationMismatch), installations.opened(elsewhere(installation.settings, own.data_dir)):
        pass
    assert keys_in_force(installation) == before


def test_an_empty_database_with_an_existing_data_folder_is_refused(settings: Settings, new_url: str) -> None:
    """Starting with an empty database and the data folder of an existing installation is refused, because an empty
    database contains no people."""
    with pytest.raises(InstallationMismatch, match="empty"):
        installations.set_up(settings.model_copy(update={"database_url": SecretStr(new_url)}))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("lethe", "serve"), id="serve"),
        pytest.param(("lethe", "serve-accounting"), id="serve-accounting", marks=pytest.mark.soak),
        pytest.param(("lethe", "migrate"), id="migrate"),
        pytest.param(("lethe", "up"), id="up", marks=pytest.mark.soak),
        pytest.param(("lethe", "rotate-key"), id="rotate-key", marks=pytest.mark.soak),
        pytest.param(("worker", "w"), id="worker", marks=pytest.mark.soak),
        pytest.param(CELERY_WORKER, id="celery", marks=pytest.mark.soak),
    ],
)
def test_commands_fail_with_a_one_line_error(
    installation: Installation, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Commands exit with code 1 and a one-line error that names the key that does not match the database."""
    shutil.copytree(installation.settings.data_dir / "keys", tmp_path / "other" / "keys")
    Changed(tmp_path / "other" / "keys" / "subject.key")
    named = {"database_url": installation.settings.resolved_database_url(), "broker_url": "redis://127.0.0.1:1/0"}
    ended = processes.ended(*command, environment=environment_of(tmp_path / "other", **named))
    assert ended.returncode == 1
    assert [line.partition(": ")[2] for line in ended.stderr.splitlines() if line.startswith("error: ")] == [
        f"installation_mismatch: {tmp_path}/other/keys/subject.key is not the key that this database was set up with; "
        "put that back."
    ]


@pytest.mark.parametrize("name", KEYS)
def test_a_changed_key_is_refused_at_start(settings: Settings, name: str) -> None:
    """If a character of a key was changed, no process starts, and the error names the key."""
    changed = Changed(settings.data_dir / "keys" / name)
    with pytest.raises(InstallationMismatch, match=name):
        installations.set_up(settings)
    for read_only in (False, True):
        with pytest.raises(InstallationMismatch, match=name), installations.opened(settings, read_only=read_only):
            pass
    changed.put_back()
    installations.set_up(settings)


@pytest.mark.parametrize("name", KEYS)
def test_a_changed_key_stops_a_running_service(
    settings: Settings,
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    forget: Make,
    work: Callable[[], int],
    name: str,
) -> None:
    """From the moment a key file changes until it is restored, calls are refused and no run starts."""
    new_dataset()
    waiting = forget("p1")
    with TestClient(accounting_main.create_app(settings), headers=gateway.headers) as accounting:
        changed = Changed(settings.data_dir / "keys" / name)
        answers = [
            gateway.post("/v1/deletion-requests", json={"subject_id": "p3"}),
            gateway.get(f"/v1/deletion-requests/{waiting['id']}"),
            gateway.get("/readyz"),
            accounting.get("/readyz"),
            accounting.get(f"/v1/accounting/deletion-requests/{waiting['id']}"),
        ]
        assert {(one.status_code, one.json()["code"]) for one in answers} == {(503, "installation_mismatch")}
        assert all(int(one.headers["retry-after"]) > 0 for one in answers)
        assert not any(name in one.text for one in answers)
        assert not runner.run_next(installation, worker="test")
        changed.put_back()
        assert accounting.get("/readyz").status_code == 200
    assert work() == 1
    assert gateway.get(f"/v1/deletion-requests/{waiting['id']}").json()["status"] == "completed"
    with installation.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(DeletionRequest)) == 1


def test_a_replaced_database_is_noticed(installation: Installation, gateway: TestClient) -> None:
    """Replacing the database with that of another installation is detected within a second."""
    with installation.database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE installation_identity SET id = 'ins_other'"))
    installation.database.guard(_renewed(installation))
    with pytest.raises(InstallationMismatch), installation.database.reading():
        pass


def test_references_with_another_key_raise(installation: Installation, gateway: TestClient, new_dataset: Make) -> None:
    """If a dataset's references were made with another key, InstallationMismatch is raised instead of a false report
    that a person is not held."""
    dataset_id = new_dataset()["id"]
    with installation.database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE datasets SET references_check = 'f00'"))
    with pytest.raises(InstallationMismatch, match=dataset_id):
        installations.set_up(installation.settings)
    installation.database.guard(_renewed(installation))
    with pytest.raises(InstallationMismatch), installation.database.reading():
        pass


def _renewed(installation: Installation) -> Callable[[], None]:
    """Return a guard that has not checked the database yet, like any guard whose last check was a second ago."""
    return installations._guard(installation.settings, installation.database, installation.keys).check


def test_a_marked_storage_location_is_not_marked_again(settings: Settings) -> None:
    """A storage location that is already marked is not marked again, so that a process killed at that moment leaves no
    partial file."""
    unfinished = settings.data_dir / ".unfinished"
    before = unfinished.stat().st_mtime_ns
    installations.set_up(settings)
    assert unfinished.stat().st_mtime_ns == before
    assert not list(unfinished.iterdir())


@pytest.mark.parametrize("owner", [None, "ins_other"])
def test_a_mismatched_data_folder_refuses_calls(
    settings: Settings, gateway: TestClient, new_dataset: Make, owner: str | None
) -> None:
    """If the data folder must contain rows but is not marked as belonging to the database, all calls are refused."""
    new_dataset()
    mark = settings.data_dir / "installation.id"
    was = mark.read_text()
    mark.unlink() if owner is None else mark.write_text(owner)
    with pytest.raises(InstallationMismatch, match="data folder"):
        installations.set_up(settings)
    assert gateway.get("/readyz").status_code == 503
    mark.write_text(was)
    assert gateway.get("/readyz").status_code == 200


def test_the_store_of_another_installation_is_refused(settings: Settings, tmp_path: Path) -> None:
    """A folder for rows and weights that another installation already uses is refused."""
    store = str(tmp_path / "store")
    installations.set_up(settings.model_copy(update={"store_url": store}))
    another = Settings(data_dir=tmp_path / "another", store_url=store)
    with pytest.raises(InstallationMismatch, match="store"):
        installations.set_up(another)
    assert not (tmp_path / "another" / "keys").exists()


def _prepare(installation: Installation, key: KeyEncryptionFile) -> None:
    key.prepare_rotation(_id(installation))


def _accept(installation: Installation, key: KeyEncryptionFile) -> None:
    key_checks.accept(
        installation.database, [*key.check_values(_id(installation)), key.prepare_rotation(_id(installation))]
    )


def _begin(_at: Installation, key: KeyEncryptionFile) -> None:
    key.begin_rotation()


def _rewrap(installation: Installation, _key: KeyEncryptionFile) -> None:
    for sealed in installations._all_sealed(installation.settings):
        if isinstance(sealed, SealedStore):
            sealed.rewrap()


def _rewrap_rest(installation: Installation, _key: KeyEncryptionFile) -> None:
    installation.vault.rewrap()


def _end(_at: Installation, key: KeyEncryptionFile) -> None:
    key.end_rotation()


def _id(installation: Installation) -> str:
    known = key_checks.of_database(installation.database)
    assert known is not None
    return known.id


_STEPS = (_prepare, _accept, _begin, _rewrap, _rewrap_rest, _end)


@pytest.mark.parametrize("done", range(len(_STEPS) + 1))
def test_an_interrupted_rotation_can_be_completed(
    settings: Settings, gateway: TestClient, installation: Installation, forget: Make, done: int
) -> None:
    """If a rotation of the key-encryption key is interrupted at any point, the service still starts and runs, and
    repeating the rotation completes it."""
    request = forget("p1", external_id="case 7")
    key = installations.key_encryption_of(settings)
    before = key.check_values(_id(installation))
    for step in _STEPS[:done]:
        step(installation, key)
        assert gateway.get("/readyz").status_code == 200
    installations.set_up(settings)
    installations.rotate_key_encryption_key(settings)
    installations.set_up(settings)
    assert gateway.get(f"/v1/deletion-requests/{request['id']}").json()["external_id"] == "case 7"
    known = key_checks.of_database(installation.database)
    assert known is not None
    assert known.check_values["kek"] == key.check_values(known.id) != before
    assert {path.name for path in (settings.data_dir / "keys").iterdir()} == {*KEYS, "admin.key"}


def test_files_are_private_to_the_owner(tmp_path: Path) -> None:
    """All files and folders are created with mode 0600 or 0700, even with umask 0 and a data folder that other users
    can enter."""
    settings = Settings(data_dir=tmp_path / "deep" / "data", store_url=str(tmp_path / "far" / "store"))
    before = os.umask(0)
    try:
        settings.data_dir.mkdir(parents=True, mode=0o755)
        installations.set_up(settings)
        with TestClient(installation_main(settings)) as client:
            client.get("/readyz")
            modes = {path: path.stat().st_mode & 0o777 for folder in tmp_path.iterdir() for path in folder.rglob("*")}
    finally:
        os.umask(before)
    assert {"lethe.db", "lethe.db-wal", "lethe.db-shm"} <= {path.name for path in modes}
    assert {path.name: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert (tmp_path / "far").stat().st_mode & 0o777 == 0o700


def installation_main(settings: Settings) -> Any:
    from app.main import create_app

    return create_app(settings)


def test_files_open_to_others_are_closed_at_startup(settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    """If other users can read a data folder, a database or keys, the next start removes their access and logs a
    message."""
    opened = [settings.data_dir, settings.data_dir / "keys", settings.data_dir / "keys" / "subject.key"]
    if settings.database_url is None:
        opened.append(settings.data_dir / "lethe.db")
    for path in opened:
        path.chmod(0o755)
    with installations.opened(settings):
        assert [path.stat().st_mode & 0o077 for path in opened] == [0] * len(opened)
    said = capfd.readouterr()
    assert (said.out + said.err).count("installation.closed_to_others") == len(opened)


def test_a_database_with_an_unknown_schema_is_refused(installation: Installation) -> None:
    """A database with an unknown schema version is refused with a message, and stays unchanged."""
    with installation.database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999' WHERE version_num LIKE 'core%'"))
    ended = migrated(installation.settings.data_dir, installation.settings.resolved_database_url())
    assert ended == OF_ANOTHER_VERSION
    assert not migrate.is_current(installation.database.engine)


class Killed(BaseException):
    """Error that simulates the end of the process during setup."""


@pytest.mark.parametrize(("owner", "name"), [(key_checks.StorageLocation, "mark"), (key_checks, "confirm_marked")])
@pytest.mark.parametrize("before", [True, False])
def test_setup_resumes_after_a_kill_while_marking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: bool
) -> None:
    """If the setup of a new database is killed while marking the storage locations, the next start finishes the
    marking. From then on, the mark must exist."""
    settings, original = Settings(data_dir=tmp_path / "new"), getattr(owner, name)

    def dying(*given: Any) -> None:
        if not before:
            original(*given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        with pytest.raises(Killed):
            installations.set_up(settings)
    installations.set_up(settings)
    with installations.opened(settings) as installation:
        known = key_checks.of_database(installation.database)
        assert known is not None
        assert known.is_marked
        with installation.database.writing() as session:
            people.hold(session, ["sub_1"])
    (settings.data_dir / "installation.id").unlink()
    with pytest.raises(InstallationMismatch, match="lacks what says"):
        installations.set_up(settings)


def test_a_database_without_its_identity_is_refused(installation: Installation) -> None:
    """A database that contains data but no installation identity is refused, and nothing is changed."""
    with installation.database.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM installation_identity"))
    with pytest.raises(InstallationMismatch, match="does not state which installation"):
        installations.set_up(installation.settings)
    assert key_checks.of_database(installation.database) is None


@pytest.mark.soak
def test_commands_refuse_a_database_with_an_unknown_schema(installation: Installation, tmp_path: Path) -> None:
    """Every command that opens a database with an unknown schema version exits at once with a one-line error."""
    with installation.database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999' WHERE version_num LIKE 'core%'"))
    settings = installation.settings
    environment = environment_of(settings.data_dir, database_url=settings.resolved_database_url())
    backup = ["backup", str(tmp_path / "archive"), "--key-file", str(tmp_path / "key")]
    of_lethe = [
        ["up"],
        ["serve"],
        ["serve-accounting"],
        ["rotate-key"],
        ["ledger", "verify"],
        ["audit", "verify"],
        backup,
    ]
    for command in [["lethe", *arguments] for arguments in of_lethe] + [["worker", "w"]]:
        ended = processes.ended(*command, environment=environment)
        assert (ended.stderr.splitlines()[-1], ended.returncode) == (f"error: {OF_ANOTHER_VERSION}", 1), command


def migrated(data_dir: Path, url: str) -> str:
    """Return the single line that `lethe migrate` prints."""
    ended = subprocess.run(
        [LETHE, "migrate"],
        env=environment_of(data_dir, database_url=url),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1), ended.stderr
    return ended.stderr.strip().removeprefix("error: ")
