"""Damage, overload and outages: answers of the service that are not due to the caller."""

import contextlib
import fcntl
import json
import socket
import subprocess
from collections.abc import Callable
from unittest.mock import patch

import httpx
import pytest
from fastapi.testclient import TestClient

from app import installations, key_checks
from app.api import places
from app.config import Settings
from app.db import migrate
from app.db.tables import LedgerEntry, Model
from app.features.archives import restoring, service as backups
from app.journal import tombstones
from app.keys import Keys
from app.main import create_app
from app.unlearning import queue
from app.vault.store import locked
from lethe.contract.sets import RunKind
from tests.conftest import CLASSES, npz
from tests.faults import processes
from tests.faults.processes import wait_until
from tests.features.together.error_codes.world import World
from tests.stored import flipped
from worker import handlers, runner
from worker.langevin.noise import SystemNoise


def weights_unreadable(w: World) -> str:
    model_id = w.live()
    [sealed] = (w.settings.data_dir / "weights").glob("*.sealed")
    content = sealed.read_bytes()
    sealed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    return w.code("GET", f"/models/{model_id}/versions/1/weights")


def mechanism_unreadable(w: World) -> str:
    model_id = w.live()
    with w.installation.database.writing() as session:
        found = session.get_one(Model, model_id)
        found.mechanism = {name: value for name, value in found.mechanism.items() if name != "cool_down"}
    return w.code("GET", f"/models/{model_id}")


def method_unsupported(w: World) -> str:
    model_id = w.live()
    with w.installation.database.writing() as session:
        found = session.get_one(Model, model_id)
        found.mechanism = found.mechanism | {"method": "of_a_deleted_feature"}
    return w.code("GET", f"/models/{model_id}")


def not_converged(w: World) -> str:
    """Return the error code of an objective-perturbation run whose solver is limited to one iteration."""
    model_id = w.model_id(method="objective_perturbation")
    with w.installation.database.writing() as session:
        found = session.get_one(Model, model_id)
        found.mechanism = found.mechanism | {"max_iterations": 1}
    w.work()
    return str(w.done("GET", f"/models/{model_id}")["error_code"])


def failed(w: World, damage: Callable[[World, str], None]) -> str:
    """Return the error code of a model after a run on damaged data."""
    model_id = w.live()
    w.forget("p1")
    damage(w, model_id)
    w.work()
    return str(w.done("GET", f"/models/{model_id}")["error_code"])


def damaged_rows(w: World, _model_id: str) -> None:
    for file in (w.settings.data_dir / "blocks").glob("*.sealed"):
        file.write_bytes(flipped(file.read_bytes(), 100))


def lost_page(w: World) -> str:
    """Return the error code for extending a request whose stored details have become unreadable."""
    request_id = w.request_id(identity_verified=False, external_id="case-7")
    for page in (w.settings.data_dir / "vault").glob("*.page"):
        page.unlink()
    return w.code("POST", f"/deletion-requests/{request_id}/extend", json={"reason": "Very many people have asked."})


def flipped_certificate(w: World) -> str:
    """Return the error code for reading a certificate in which one character was altered."""
    w.live()
    request_id = w.request_id()
    w.work()
    [certificate] = w.done("GET", f"/deletion-requests/{request_id}/certificate")["certificates"]
    jws = flipped(certificate["jws"].encode(), 400).decode()
    w.behind(f"UPDATE certificates SET jws = '{jws}'")
    return w.code("GET", f"/certificates/{certificate['id']}")


def too_little_memory(w: World, _model_id: str) -> None:
    w.installation.rows._most_bytes = 1


def exceeded(w: World) -> str:
    """Return the error code of a run whose batches exceed the model's stated second moment."""
    w.model_id(second_moment=0.01)
    w.work()
    return str(w.done("GET", "/runs")["items"][0]["error_code"])


def unsupported_kind(w: World) -> str:
    """Return the error code of a run whose worker has no handler for its kind."""
    handlers.handler_of(RunKind.LEARN)
    with patch.dict(handlers._HANDLERS):
        del handlers._HANDLERS[RunKind.LEARN]
        w.model_id()
        w.work()
    return str(w.done("GET", "/runs")["items"][0]["error_code"])


def busy_dataset(w: World) -> str:
    """Return the error code for rechecking a dataset during a run."""
    dataset_id = w.dataset_id()
    w.forget("p1")
    with w.installation.database.writing() as session:
        assert queue.claim(session, worker="w", lease_seconds=60, max_requests=10)
    return w.code("POST", f"/datasets/{dataset_id}/recheck")


def other_mechanism(w: World, model_id: str) -> None:
    with w.installation.database.writing() as session:
        stored = session.get_one(Model, model_id)
        stored.mechanism = stored.mechanism | {"num_parameters": 3}


def refuted(w: World) -> str:
    """Return the error code of a canary test whose worker adds too little noise."""
    w.done("POST", f"/models/{w.live()}/audit")
    normal = SystemNoise.normal
    with pytest.MonkeyPatch.context() as planted:
        planted.setattr(SystemNoise, "normal", lambda noise, size: normal(noise, size) / 2)
        w.work()
    return str(w.done("GET", "/runs")["items"][0]["error_code"])


def forged_ledger(w: World) -> str:
    w.live()
    w.behind(f"UPDATE {LedgerEntry.__tablename__} SET hash = 'a'", triggers_of="ledger")
    return w.lethe("ledger", "verify")


def forged_audit(w: World) -> str:
    w.request_id()
    w.behind("UPDATE audit_entries SET actor = 'key_0' WHERE sequence = 1", triggers_of="audit")
    return w.lethe("audit", "verify")


def two_at_once(w: World) -> str:
    with (w.settings.data_dir / "lethe.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return w.lethe("up")


def taken_port(w: World) -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return w.lethe("up", LETHE_PORT=str(taken.getsockname()[1]))


def unusable_certificate(w: World) -> str:
    settings = w.settings.model_copy(update={"opendsr_certificate_file": w.settings.data_dir / "nothing.pem"})
    with TestClient(create_app(settings), raise_server_exceptions=False, headers=w.gateway.headers) as gateway:
        [fault] = gateway.get("/opendsr/v2/discovery").json()["error"]["errors"]
    return str(fault["reason"])


def restored_ledger(w: World) -> str:
    archive, key = w.settings.data_dir / "archive", w.settings.data_dir / "archive.key"
    w.live()
    backups.back_up(w.installation, archive, key_file=key, progress=lambda *_: None)
    w.forget("p1")
    w.work()
    head = w.settings.data_dir / "head.json"
    head.write_text(w.gateway.get("/v1/ledger/head").text)
    tombstones.record(w.installation)
    elsewhere = Settings(data_dir=w.settings.data_dir / "restored")
    own = w.settings.resolved_tombstones()
    restoring.restore(elsewhere, archive, key_file=key, remembered_in=own, progress=lambda *_: None)
    return w.lethe("ledger", "verify", "--head", str(head), LETHE_DATA_DIR=str(elsewhere.data_dir))


def damaged_archive(w: World) -> str:
    archive, key = w.settings.data_dir / "archive", w.settings.data_dir / "archive.key"
    backups.back_up(w.installation, archive, key_file=key, progress=lambda *_: None)
    archive.write_bytes(archive.read_bytes()[:-1])
    words = ("restore", str(archive), "--key-file", str(key), "--no-tombstones", "--lost-versions", "0")
    elsewhere = w.settings.data_dir / "restored"
    return w.lethe(*words, LETHE_DATA_DIR=str(elsewhere))


def stale_tombstones(w: World) -> str:
    archive, key = w.settings.data_dir / "archive", w.settings.data_dir / "archive.key"
    older = w.settings.data_dir / "older.jsonl"
    older.touch()
    backups.back_up(w.installation, archive, key_file=key, progress=lambda *_: None)
    words = ("restore", str(archive), "--key-file", str(key), "--tombstones", str(older))
    return w.lethe(*words, LETHE_DATA_DIR=str(w.settings.data_dir / "restored"))


def damaged_tombstones(w: World, _model_id: str) -> None:
    file = w.settings.resolved_tombstones()
    # Without the lock, the gateway would start a new file when it finds an empty one.
    with locked(file.parent):
        file.write_text("{}\n")


def older_database(w: World) -> str:
    """Return the code that every call gets once the gateway has found that the database lost events."""
    w.done("POST", "/deletion-requests", json={"subject_id": "p1"})
    tombstones.record(w.installation)
    w.behind("DELETE FROM request_events")
    wait_until(lambda: w.gateway.get("/readyz").status_code == 503)
    return w.code("GET", "/models")


def cut_off_restore(w: World) -> str:
    installations.unfinished(w.settings).touch()
    return w.lethe("up")


def no_database(w: World) -> str:
    migrate.downgrade(w.installation.database.engine)
    return w.code("GET", "/models")


def changed_key(w: World) -> str:
    (w.settings.data_dir / "keys" / "subject.key").write_text("0" * 64)
    return w.code("GET", "/models")


def full_disk(w: World) -> str:
    """Return the error code for an upload whose temporary file does not fit on the disk."""
    small = w.settings.data_dir / "tmp"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "small", small], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("only who may mount can have a small disk")
    try:
        return w.upload(npz(rows=500), classes=CLASSES)
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


def damaged_database(w: World) -> str:
    w.installation.database.scrub()
    file = w.settings.data_dir / "lethe.db"
    with file.open("r+b") as pages:
        pages.seek(8192)
        pages.write(b"\xff" * (file.stat().st_size - 8192))
    return w.lethe("migrate")


def unverifiable(w: World) -> str:
    """Return the error code of a run whose private signing key does not match the published public key."""
    model_id = w.live()
    w.forget("p1")
    file = w.settings.data_dir / "keys" / "signing.jwk"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"d": "A" * 43}))
    known = key_checks.of_database(w.installation.database)
    assert known is not None
    values = {**known.check_values, "signing.jwk": Keys(file.parent).check_value("signing.jwk", known.id)}
    w.behind(f"UPDATE installation_identity SET check_values = '{json.dumps(values)}'")
    with installations.opened(w.settings) as installation:
        assert runner.run_next(installation, worker="test")
        with installation.database.reading() as session:
            return str(session.get_one(Model, model_id).error_code)


def too_many_calls(w: World) -> str:
    """Keep as many large calls unfinished as the gateway serves at once, and return the code of one more call."""
    head = f"POST /v1/lineage HTTP/1.1\r\nHost: lethe\r\nAuthorization: {w.gateway.headers['Authorization']}\r\n"
    with contextlib.ExitStack() as stack:
        _, url = stack.enter_context(processes.gateway(w.settings))
        place = httpx.URL(url)
        for _ in range(places.LIMITS["large"][0]):
            call = stack.enter_context(socket.create_connection((place.host, place.port or 80)))
            call.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n".encode())

        def refused() -> str | None:
            headers = {"Authorization": w.gateway.headers["Authorization"]}
            answer = httpx.post(f"{url}/v1/lineage", timeout=120, headers=headers, content=b"{" + b" " * 100_000)
            return None if answer.status_code == 422 else str(answer.json()["code"])

        return str(processes.wait_until(refused))


def raw(w: World, said: bytes) -> str:
    """Return the code of the gateway's response to these raw bytes."""
    with processes.gateway(w.settings) as (_, url), socket.socket() as caller:
        place = httpx.URL(url)
        caller.connect((place.host, place.port))
        caller.sendall(said)
        answer = b""
        while more := caller.recv(65536):
            answer += more
        return str(json.loads(answer.partition(b"\r\n\r\n")[2])["code"])


def defect(w: World) -> str:
    model_id = w.live()
    w.behind("UPDATE models SET created_at = 'never'", triggers_of="models")
    return w.code("GET", f"/models/{model_id}")
