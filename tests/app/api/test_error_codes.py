"""Every error code: it is reached by a real call, over HTTP or the command line, and docs/errors.md says what to do."""

import contextlib
import datetime
import fcntl
import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
import torch
from fastapi.testclient import TestClient

from app import installations, key_checks
from app.api import pressure, problems
from app.backup import restoring, tombstones
from app.backup import service as backups
from app.config import Settings
from app.db import migrate
from app.db.tables import LedgerEntry, Model
from app.installations import Installation
from app.keys import Keys
from app.main import create_app
from app.unlearning import queue
from lethe.contract.problems import Gone, Malformed, NotAllowed, Problem, Refused
from lethe.contract.sets import Scope
from tests.app.api.agents import Agent
from tests.app.deletion import people
from tests.app.encoders import nets
from tests.conftest import CLASSES, npz
from tests.faults import processes
from tests.lethe.tangents.networks import exported
from tests.stored import flipped
from tests.tables import at_length
from worker import runner
from worker.langevin.noise import SystemNoise

DOCUMENT = Path(__file__).parents[3] / "docs" / "errors.md"
ED25519 = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "1"}
MUCH_WORK = {"eps_target": 1.0, "sigma": 0.03, "total": 200, "batch": 1, "Mlip": 1, "m": 0.0119, "L": 0.26}
MUCH_WORK |= {"n": 11982, "delta": 1e-5}
CSV_SCHEMA = {
    "columns": {"age": {"kind": "numeric", "min": 0, "max": 100}, "y": {"role": "label", "values": ["a", "b"]}}
}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """An installation of the test's own, and what is easily done in it."""

    gateway: TestClient
    installation: Installation
    settings: Settings
    work: Callable[[], int]
    new_dataset: Callable[..., dict[str, Any]]
    new_model: Callable[..., dict[str, Any]]
    forget: Callable[..., dict[str, Any]]
    key_with: Callable[..., dict[str, str]]

    def code(self, method: str, path: str, **asked: Any) -> str:
        """Of the problem that the call is answered with."""
        answer = self.gateway.request(method, f"/v1{path}", **asked)
        assert answer.headers["content-type"] == problems.MEDIA_TYPE, answer.text
        found: str = answer.json()["code"]
        assert answer.status_code == answer.json()["status"] == status_of(found)
        return found

    def done(self, method: str, path: str, **asked: Any) -> Any:
        answer = self.gateway.request(method, f"/v1{path}", **asked)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def twice(self, path: str, body: dict[str, Any]) -> str:
        self.done("POST", path, json=body)
        return self.code("POST", path, json=body)

    def upload(self, content: bytes, name: str = "people.npz", **asked: Any) -> str:
        return self.code("POST", "/datasets", data={"name": "people"} | asked, files={"file": (name, content)})

    def dataset_id(self, **asked: Any) -> str:
        return str(self.new_dataset(**asked)["id"])

    def model_id(self, **asked: Any) -> str:
        return str(self.new_model(self.dataset_id(), **asked)["id"])

    def live(self) -> str:
        model_id = self.model_id()
        self.work()
        return model_id

    def request_id(self, **asked: Any) -> str:
        return str(self.forget("p1", **asked)["id"])

    def under(self, **limit: Any) -> dict[str, str]:
        """A regulation of the tenant's own."""
        self.done("PATCH", "/tenant", json={"policy": {"regulations": {"own": {"days": 30} | limit}}})
        return {"regulation": "own"}

    def behind(self, *statements: str, triggers_of: str = "") -> None:
        """What somebody with the database's password does."""
        with self.installation.database.engine.begin() as connection:
            named = f"SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE '{triggers_of}%'"
            for name in connection.scalars(sa.text(named)).all() if triggers_of else ():
                connection.execute(sa.text(f"DROP TRIGGER {name}"))
            for statement in statements:
                connection.execute(sa.text(statement))

    def lethe(self, *words: str, **more: str) -> str:
        """The code that a command ends with."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
        environment |= {"LETHE_DATA_DIR": str(self.settings.data_dir)} | more
        done = subprocess.run(
            [processes.LETHE, *words], env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 1
        return done.stderr.removeprefix("error: ").partition(":")[0]

    def agent(self) -> Agent:
        self.done("PATCH", "/tenant", json={"policy": {"drp_business_id": "BUSINESS"}})
        agent = Agent(gateway=self.gateway)
        agent.register()
        assert agent.set_up().status_code == 200
        return agent


@pytest.fixture
def world(
    gateway: TestClient,
    installation: Installation,
    settings: Settings,
    work: Callable[[], int],
    new_dataset: Callable[..., dict[str, Any]],
    new_model: Callable[..., dict[str, Any]],
    forget: Callable[..., dict[str, Any]],
    key_with: Callable[..., dict[str, str]],
) -> World:
    return World(
        gateway=gateway,
        installation=installation,
        settings=settings,
        work=work,
        new_dataset=new_dataset,
        new_model=new_model,
        forget=forget,
        key_with=key_with,
    )


def status_of(code: str) -> int:
    return next(problems.status_of(condition) for condition in conditions() if condition.code == code)


FAMILIES = {Gone, Malformed, NotAllowed, Refused}
"""They say what to do about the conditions below them; no call is answered with them."""


def conditions(base: type[Problem] = Problem) -> list[type[Problem]]:
    every = [base, *(found for child in base.__subclasses__() for found in conditions(child))]
    return [one for one in every if one not in FAMILIES and one.__module__ not in ("lethe.errors", "lethe.mlflow")]


def unknown(w: World, path: str, method: str = "GET") -> str:
    return w.code(method, path)


def form_from_elsewhere(w: World) -> str:
    """A page says its code too."""
    [code] = re.findall('data-code="([a-z_]+)"', w.gateway.post("/admin/login", data={"key": "lethe_x"}).text)
    return str(code)


def invited(w: World, **asked: str) -> dict[str, str]:
    """Somebody who was invited."""
    body = {"name": "Maria", "email": "maria@example.com", "role": "administrator"} | asked
    made: dict[str, str] = w.done("POST", "/users", json=body)
    return made


def at_the_door(w: World, path: str, **fields: str) -> str:
    """The code of a page that somebody sees who is not logged in yet."""
    form = re.findall('name="csrf" value="([0-9a-f]{64})"', w.gateway.get("/admin/login").text)
    page = w.gateway.post(path, data={"csrf": form[0]} | fields, headers={"Origin": "http://testserver"})
    return str(re.findall('data-code="([a-z_]+)"', page.text)[0])


def by_provider(w: World, path: str) -> str:
    """The code of a page of a login by an identity provider that is away."""
    settings = w.settings.model_copy(update={"oidc_issuer": "http://127.0.0.1:9", "oidc_client_id": "lethe"})
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        return str(re.findall('data-code="([a-z_]+)"', client.get(path).text)[0])


def last_administrator(w: World) -> str:
    """The only administrator is to become a viewer, when no key lasts."""
    made = invited(w)
    w.behind("UPDATE users SET password_hash = 'any'", "UPDATE api_keys SET expires_at = '2999-01-01 00:00:00.000000'")
    return w.code("PATCH", f"/users/{made['id']}", json={"role": "viewer"})


def with_agent(w: World, **said: Any) -> str:
    """The protocol has no codes: a message is refused in words."""
    words = w.agent().exercise(**said).json()["message"]
    sentences = {
        "another business": "message_refused",
        "from the future": "message_early",
        "expired": "message_expired",
    }
    return next((code for sentence, code in sentences.items() if sentence in words), words)


def moments(**hours: int) -> dict[str, str]:
    at = datetime.datetime.now(datetime.UTC)
    return {f"{name}-at": (at + datetime.timedelta(hours=passed)).isoformat() for name, passed in hours.items()}


def rate_limited(w: World) -> str:
    body = {"name": "slow", "scopes": ["models:read"], "calls_per_minute": 1}
    headers = {"Authorization": f"Bearer {w.done('POST', '/api-keys', json=body)['key']}"}
    w.done("GET", "/models", headers=headers)
    return w.code("GET", "/models", headers=headers)


def statement_wanted(w: World, **asked: str) -> str:
    w.done("PATCH", "/tenant", json={"policy": {"identity": "statement"}})
    return w.code("POST", "/deletion-requests", json={"subject_id": "p1"} | asked)


def weights_destroyed(w: World) -> str:
    model_id = w.live()
    w.forget("p1")
    w.work()
    return w.code("GET", f"/models/{model_id}/versions/1/weights")


def less_than_asked_for(w: World) -> str:
    w.live()
    request_id = w.request_id()
    w.work()
    [certificate] = w.done("GET", f"/deletion-requests/{request_id}/certificate")["certificates"]
    return w.code("POST", "/certificates:verify", json={"jws": certificate["jws"], "max_epsilon": 1e-6})


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


def idempotency_conflict(w: World) -> str:
    once = {"headers": {"Idempotency-Key": "one"}}
    w.done("POST", "/deletion-requests", json={"subject_id": "p1"}, **once)
    return w.code("POST", "/deletion-requests", json={"subject_id": "p2"}, **once)


def evaluation_overlaps(w: World) -> str:
    one, other = w.dataset_id(), w.dataset_id()
    return w.code("POST", "/models", json={"name": "m", "dataset_id": one, "evaluation_dataset_id": other})


def subject_rule_fixed(w: World) -> str:
    w.request_id()
    return w.code("PATCH", "/tenant", json={"policy": {"subject_rule": "email"}})


def last_admin_key(w: World) -> str:
    [own] = w.done("GET", "/api-keys")["items"]
    return w.code("DELETE", f"/api-keys/{own['id']}")


def extended(w: World, *, after: datetime.timedelta | None = None, regulation: str = "gdpr", times: int = 1) -> str:
    w.new_dataset()
    path = f"/deletion-requests/{w.request_id(regulation=regulation)}/extend"
    if after:
        with w.installation.database.writing() as session:
            people.later(session, after)
    for _ in range(times - 1):
        w.done("POST", path, json={"reason": "much to do"})
    return w.code("POST", path, json={"reason": "much to do"})


def decided(w: World) -> str:
    request_id = w.request_id(identity_verified=False)
    w.done("POST", f"/deletion-requests/{request_id}/cancel")
    return w.code("POST", f"/deletion-requests/{request_id}/approve")


def paused(w: World) -> str:
    request_id = w.request_id(identity_verified=False, **w.under())
    return w.code("POST", f"/deletion-requests/{request_id}/pause", json={"reason": "identity"})


def referred(w: World) -> str:
    w.new_dataset()
    return w.code("POST", "/deletion-requests", json={"subject_id": "p1", "refers_to": w.request_id()})


def suppressed(w: World) -> str:
    w.new_dataset()
    w.forget("p1")
    w.work()
    return w.upload(npz(), classes=CLASSES)


def failed(w: World, damage: Callable[[World, str], None]) -> str:
    """What the run of a model ended with."""
    model_id = w.live()
    w.forget("p1")
    damage(w, model_id)
    w.work()
    return str(w.done("GET", f"/models/{model_id}")["error_code"])


def damaged_rows(w: World, _model_id: str) -> None:
    for file in (w.settings.data_dir / "blocks").glob("*.sealed"):
        file.write_bytes(flipped(file.read_bytes(), 100))


def too_little_memory(w: World, _model_id: str) -> None:
    w.installation.rows._most_bytes = 1


def exceeded(w: World) -> str:
    """What the run of a model ended with whose batches exceed what it states."""
    w.model_id(second_moment=0.01)
    w.work()
    return str(w.done("GET", "/runs")["items"][0]["error_code"])


def busy_dataset(w: World) -> str:
    """What a recheck is told while a run is at work."""
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
    """What an audit ended with of a worker whose noise is too small."""
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
    w.settings.resolved_tombstones().write_text("{}\n")


def older_database(w: World, _model_id: str) -> None:
    tombstones.record(w.installation)
    w.behind("DELETE FROM request_events")


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
    """No room for what is spooled."""
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
    """What a run ended with where the private key is not that of the published one, and the database knows no other."""
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
    """As many calls as are taken at once, none of which says all that it has to say."""
    head = f"POST /v1/lineage HTTP/1.1\r\nHost: lethe\r\nAuthorization: {w.gateway.headers['Authorization']}\r\n"
    with contextlib.ExitStack() as stack:
        _, url = stack.enter_context(processes.gateway(w.settings))
        place = httpx.URL(url)
        for _ in range(pressure.CALLS):
            call = stack.enter_context(socket.create_connection((place.host, place.port or 80)))
            call.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n".encode())

        def refused() -> str | None:
            headers = {"Authorization": w.gateway.headers["Authorization"]}
            answer = httpx.post(f"{url}/v1/lineage", timeout=120, headers=headers, json={})
            return None if answer.status_code == 422 else str(answer.json()["code"])

        return str(processes.wait_until(refused))


def raw(w: World, said: bytes) -> str:
    """What the gateway answers to these bytes."""
    with processes.gateway(w.settings) as (_, url), socket.socket() as caller:
        place = httpx.URL(url)
        caller.connect((place.host, place.port))
        caller.sendall(said)
        answer = b""
        while more := caller.recv(65536):
            answer += more
        return str(json.loads(answer.partition(b"\r\n\r\n")[2])["code"])


def held(w: World) -> str:
    """A model whose version misses its gate."""
    measured = w.dataset_id(name="measured", seed=1, first=1000)
    gate = {"metric": "accuracy", "threshold": 2.0, "on_breach": "hold"}
    model_id = w.model_id(evaluation_dataset_id=measured, quality=gate)
    w.work()
    return model_id


def waited_for(w: World) -> str:
    """A model that somebody waits for."""
    model_id = w.live()
    w.request_id()
    return model_id


def retired(w: World, kind: str, retired_id: str) -> str:
    w.done("DELETE", f"/{kind}/{retired_id}")
    return retired_id


def ended_run(w: World) -> str:
    w.live()
    return str(w.done("GET", "/runs")["items"][0]["id"])


def defect(w: World) -> str:
    model_id = w.live()
    w.behind("UPDATE models SET created_at = 'never'", triggers_of="models")
    return w.code("GET", f"/models/{model_id}")


def network(gateway: TestClient, content: bytes) -> str:
    """The code of the problem with which a network is answered; empty if it is taken."""
    answer = gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", content)})
    return str(answer.json().get("code", ""))


def network_without_memory(w: World) -> str:
    settings = w.settings.model_copy(update={"network_memory_bytes": 1})
    with TestClient(create_app(settings), raise_server_exceptions=False, headers=w.gateway.headers) as gateway:
        return network(gateway, nets.linear())


def network_in_use(w: World) -> str:
    """A network is deleted of which the rows of a dataset are on record as features."""
    network(w.gateway, nets.linear())
    [found] = w.done("GET", "/networks")["items"]
    w.behind(f"UPDATE datasets SET network_id = '{found['id']}' WHERE id = '{w.dataset_id()}'")
    return w.code("DELETE", f"/networks/{found['id']}")


def tangent_predicted(w: World) -> str:
    """Predictions are asked of a model that moves weights of a network."""
    dataset = w.new_dataset()
    content = exported(torch.nn.Sequential(torch.nn.Linear(dataset["num_features"], 1)), dataset["num_features"])
    network(w.gateway, content)
    [found] = w.done("GET", "/networks")["items"]
    made = w.new_model(dataset["id"], tangent={"network_id": found["id"], "layers": ["0.weight"]}, l2=0.1)
    w.work()
    return w.code("POST", f"/models/{made['id']}/predictions", json={"records": [[0.0] * dataset["num_features"]]})


REACHED: dict[str, Callable[[World], str]] = {
    "internal_error": defect,
    # malformed input
    "input_invalid": lambda w: w.code("POST", "/deletion-requests", json={}),
    "batch_refused": lambda w: w.code("POST", "/deletion-requests:batch", json={"requests": [{}]}),
    "schema_invalid": lambda w: w.upload(b"age\n1\n", "people.csv", schema="{}"),
    "row_invalid": lambda w: w.upload(b"age,y\nold,a\n1,b\n", "people.csv", schema=json.dumps(CSV_SCHEMA)),
    "message_early": partial(with_agent, **moments(issued=1, expires=2)),
    "message_expired": partial(with_agent, **moments(issued=-2, expires=-1)),
    "dataset_unusable": lambda w: w.upload(b"age,y\n1,a\n2,a\n", "people.csv", schema=json.dumps(CSV_SCHEMA)),
    "upload_too_large": lambda w: w.code("POST", "/lineage", headers={"Content-Length": str(2**40)}, content=b"{}"),
    "network_invalid": lambda w: network(w.gateway, b"PK no network"),
    "network_failed": network_without_memory,
    "work_exceeded": lambda w: w.code("POST", "/accounting/bounds/alg6_K_list", json={"params": MUCH_WORK}),
    "headers_too_large": lambda w: raw(w, b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000),
    "request_timed_out": lambda w: raw(w, b"GET / HTTP/1.1\r\n"),
    "precondition_failed": lambda w: w.code(
        "POST", "/models", json={"name": "m", "dataset_id": w.dataset_id(), "l2": 0.05, "noise_scale": 1e-200}
    ),
    "identity_statement_required": statement_wanted,
    "target_too_weak": lambda w: w.code(
        "POST", "/models", json={"name": "m", "dataset_id": w.dataset_id(), "target": {"epsilon": 8.1}}
    ),
    "target_unreachable": lambda w: w.code(
        "POST", "/models", json={"name": "m", "dataset_id": w.dataset_id(), "l2": 1e-8}
    ),
    # who is asking
    "unauthenticated": lambda w: w.code("GET", "/models", headers={"Authorization": "Bearer no"}),
    "scope_missing": lambda w: w.code("GET", "/tenant", headers=w.key_with(Scope.MODELS_READ)),
    "rate_limited": rate_limited,
    "login_refused": lambda w: at_the_door(w, "/admin/login", email="nobody@example.com", password="wrong"),
    "identity_refused": partial(by_provider, path="/admin/oidc/return?state=x&code=x"),
    "form_refused": form_from_elsewhere,
    "message_refused": partial(with_agent, **{"business-id": "ANOTHER"}),
    "identity_statement_invalid": partial(statement_wanted, identity_statement="a.b.c"),
    # what is asked for
    "not_found": partial(unknown, path="/nothing"),
    "key_unknown": partial(unknown, path="/api-keys/key_0", method="DELETE"),
    "user_unknown": partial(unknown, path="/users/usr_0"),
    "invitation_over": lambda w: at_the_door(w, "/admin/welcome", invitation="used"),
    "agent_unknown": partial(unknown, path="/agents/agt_0", method="DELETE"),
    "tenant_unknown": partial(unknown, path="/tenants/ten_0"),
    "bound_unknown": lambda w: w.code("POST", "/accounting/bounds/none", json={"params": {}}),
    "network_unknown": partial(unknown, path="/networks/net_0"),
    "dataset_unknown": partial(unknown, path="/datasets/ds_0"),
    "addition_unknown": lambda w: w.code("GET", f"/datasets/{w.dataset_id()}/additions/add_0"),
    "subject_unknown": lambda w: w.code("GET", f"/datasets/{w.dataset_id()}/subjects/nobody"),
    "model_unknown": partial(unknown, path="/models/mdl_0"),
    "version_unknown": lambda w: w.code("GET", f"/models/{w.model_id()}/versions/1"),
    "request_unknown": partial(unknown, path="/deletion-requests/dr_0"),
    "delivery_unknown": partial(unknown, path="/webhook-deliveries/whd_0"),
    "issuer_unknown": partial(unknown, path="/identity-issuers/iss_0", method="DELETE"),
    "run_unknown": partial(unknown, path="/runs/run_0"),
    "rehearsal_unknown": lambda w: w.code("GET", f"/models/{w.model_id()}/rehearsals/reh_0"),
    "certificate_unknown": partial(unknown, path="/certificates/crt_0"),
    "weights_destroyed": weights_destroyed,
    # what cannot be done now
    "idempotency_conflict": idempotency_conflict,
    "tenant_exists": lambda w: w.twice("/tenants", {"name": "other"}),
    "user_exists": lambda w: w.twice("/users", {"name": "Maria", "email": "maria@example.com", "role": "viewer"}),
    "last_administrator": last_administrator,
    "last_admin_key": last_admin_key,
    "evaluation_overlaps": evaluation_overlaps,
    "subject_rule_fixed": subject_rule_fixed,
    "transition_forbidden": decided,
    "request_open": referred,
    "already_extended": partial(extended, times=2),
    "extension_too_late": partial(extended, after=datetime.timedelta(days=60)),
    "extension_not_provided": lambda w: extended(w, **w.under()),
    "clock_runs_on": paused,
    "subject_suppressed": suppressed,
    "dataset_full": lambda w: w.code(
        "POST", f"/datasets/{w.dataset_id()}/records", files={"file": ("more.npz", npz(rows=4, seed=1))}
    ),
    "secret_not_present": lambda w: w.code("POST", "/webhook-secret/rotate", json={"generation": 3}),
    "network_exists": lambda w: network(w.gateway, nets.linear()) or network(w.gateway, nets.linear()),
    "network_in_use": network_in_use,
    "tangent_served_elsewhere": tangent_predicted,
    "issuer_exists": lambda w: w.twice(
        "/identity-issuers", {"issuer": "https://login.example", "audience": "lethe", "jwks": {"keys": [JWK]}}
    ),
    "rehearsal_pending": lambda w: w.twice(f"/models/{w.live()}/rehearsals", {"people": 10}),
    "rehearsal_too_large": lambda w: w.code("POST", f"/models/{w.live()}/rehearsals", json={"people": 31}),
    "model_held": lambda w: w.code("POST", f"/models/{held(w)}/predictions", json={"records": [[0, 0, 0]]}),
    "model_in_use": lambda w: w.code("DELETE", f"/models/{waited_for(w)}"),
    "model_retired": lambda w: w.code("POST", f"/models/{retired(w, 'models', w.model_id())}/relearn"),
    "dataset_in_use": lambda w: w.code("DELETE", f"/datasets/{w.new_model(w.dataset_id())['dataset_id']}"),
    "adaptive_budget_spent": lambda w: w.code(
        "POST",
        "/models",
        json={"name": "m", "dataset_id": w.dataset_id(form={"adaptive_epsilon": "0.01", "adaptive_delta": "1e-5"})},
    ),
    "dataset_retired": lambda w: w.code(
        "POST", "/models", json={"name": "m", "dataset_id": retired(w, "datasets", w.dataset_id())}
    ),
    "run_not_cancellable": lambda w: w.code("POST", f"/runs/{ended_run(w)}/cancel"),
    "model_not_live": lambda w: w.code("GET", f"/accounting/models/{w.model_id()}"),
    "agent_exists": lambda w: w.twice("/agents", {"agent_id": "agent", "name": "Agent", "verify_key": ED25519}),
    # refusals of the engine and the accountant
    "run_differs_from_plan": partial(failed, damage=other_mechanism),
    "audit_failed": refuted,
    "dataset_damaged": partial(failed, damage=damaged_rows),
    "dataset_too_large": partial(failed, damage=too_little_memory),
    "second_moment_exceeded": exceeded,
    "dataset_busy": busy_dataset,
    "ledger_corrupt": forged_ledger,
    "ledger_restored": restored_ledger,
    "audit_corrupt": forged_audit,
    "weights_unreadable": weights_unreadable,
    "mechanism_unreadable": mechanism_unreadable,
    "certificate_beyond_limits": less_than_asked_for,
    "signature_unverifiable": unverifiable,
    "certificate_invalid": lambda w: w.code("POST", "/certificates:verify", json={"jws": "a.b.c"}),
    # not here, not now
    "method_not_allowed": partial(unknown, path="/models", method="PUT"),
    "unavailable": no_database,
    "installation_mismatch": changed_key,
    "identity_provider_unavailable": partial(by_provider, path="/admin/oidc"),
    "storage_full": full_disk,
    "database_damaged": damaged_database,
    "busy": too_many_calls,
    # starting the service
    "already_running": two_at_once,
    "database_unreadable": lambda w: w.lethe("ledger", "verify", LETHE_DATA_DIR=str(w.settings.data_dir / "none")),
    "folder_exposed": lambda w: w.lethe("migrate", LETHE_STORE_URL="/proc/self/task"),
    "signing_unusable": unusable_certificate,
    "address_in_use": taken_port,
    # backups
    "backup_refused": lambda w: w.lethe("restore", "nothing", "--key-file", "nothing"),
    "backup_damaged": damaged_archive,
    "tombstones_stale": stale_tombstones,
    "tombstones_damaged": partial(failed, damage=damaged_tombstones),
    "database_put_back": partial(failed, damage=older_database),
    "restore_unfinished": cut_off_restore,
}
NEVER_SEEN = {
    "conflict": "what all that cannot be done now have in common; each has a code of its own",
    "lease_lost": "a worker whose run another one took says so in its own log: the run is not its own any more",
}


BY_PROCESSES = {
    "address_in_use",
    "already_running",
    "backup_damaged",
    "backup_refused",
    "folder_exposed",
    "ledger_restored",
    "request_timed_out",
    "restore_unfinished",
    "tombstones_stale",
}
"""Those that are reached by starting services, or by waiting for long."""


@pytest.mark.parametrize("code", at_length(REACHED, besides=REACHED.keys() - BY_PROCESSES))
def test_it_is_reached_by_a_real_call(world: World, code: str) -> None:
    """Somebody can bring every condition about, and is told its code."""
    assert REACHED[code](world) == code


def test_there_are_no_others() -> None:
    """Every condition is reached by a call of this file, or it is said why nobody ever sees it."""
    assert REACHED.keys() | NEVER_SEEN.keys() == {condition.code for condition in conditions()}
    assert not REACHED.keys() & NEVER_SEEN.keys()


def rows() -> Iterator[tuple[str, str]]:
    """Code and status of each row that says what it means and what to do."""
    for line in DOCUMENT.read_text().splitlines():
        if found := re.fullmatch(r"\| `(\w+)` \| (\S+) \| \S.* \| \S.* \|", line):
            yield found[1], found[2]


def test_the_document_lists_them_all() -> None:
    """docs/errors.md has a row for every code, with its status, what it means, and what to do."""
    documented = list(rows())
    ours = {condition.code: str(problems.status_of(condition)) for condition in conditions()}
    assert sorted(code for code, _ in documented) == sorted((ours.keys() - {"conflict"}) | {"settings_invalid"})
    for code, status in documented:
        assert status == ours.get(code) or (status == "–" and ours.get(code, "500") == "500"), code
