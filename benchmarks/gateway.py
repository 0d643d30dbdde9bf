"""The gateway under load, and with a million requests stored: `./dev bench gateway`.

Intake is measured by wrk (Debian: `apt-get install wrk`) on SQLite and on PostgreSQL, with 1, 8 and 32 clients that
each ask for somebody new, beside the floor: a bare FastAPI endpoint that inserts one row with SQLAlchemy, on the same
database, through the same engine and the same uvicorn, in turns in the same run. Both are one process; no worker runs.
`held` asks for people whose row a live model carries; `nothing held`, for strangers.

Then a million requests are put into each database, and what reads them is timed: over HTTP what callers ask, in a
session what workers ask. Writes benchmarks/results/gateway.json.
"""

import argparse
import base64
import contextlib
import datetime
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import sqlalchemy as sa
from fastapi import FastAPI
from pydantic import BaseModel, SecretStr
from rich.console import Console
from rich.table import Table
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from app import installation, supervisor
from app.config import Settings
from app.db import Database, now
from app.db.tables import DeletionRequest
from app.deletion import repository as deletion
from app.installation import Installation
from app.privacy import calibration
from app.unlearning import repository as unlearning
from app.unlearning import service
from tests.postgres.server import Server
from worker import runner

RESULTS = Path(__file__).parent / "results"
CLIENTS = (1, 8, 32)
PEOPLE = 50_000
_WRK = """
local number, step, body, path
function init(args)
    path, body, number = args[1], args[2], tonumber(args[3])
    wrk.headers["Content-Type"] = "application/json"
    if args[4] then wrk.headers["Authorization"] = "Bearer " .. args[4] end
end
function request()
    number = number + 1
    wrk.headers["Idempotency-Key"] = "key-" .. number
    return wrk.format("POST", path, nil, string.format(body, number))
end
function done(summary, latency)
    io.write(string.format('{"answered":%d,"microseconds":%d,"p50":%f,"p99":%f,"longest":%f,"refused":%d,"lost":%d}',
        summary.requests, summary.duration, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
        latency.max / 1e3, summary.errors.status,
        summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout), "\\n")
end
"""


class DurableServer(Server):
    """PostgreSQL as it comes: every commit is synced."""

    def start(self) -> None:
        local = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_buffers=512MB")
        options = [part for setting in local for part in ("-c", setting)]
        self._process = self._run("postgres", "-p", str(self.port), *options)
        while not self.answers():
            time.sleep(0.05)


class Rows(DeclarativeBase):
    """The table of the floor."""


class Row(Rows):
    __tablename__ = "floor"
    id: Mapped[int] = mapped_column(primary_key=True)
    subject_id: Mapped[str]
    created_at: Mapped[datetime.datetime] = mapped_column(sa.DateTime(timezone=True))


class RowIn(BaseModel):
    subject_id: str


class RowOut(RowIn):
    id: int
    created_at: datetime.datetime


def floor(settings: Settings) -> FastAPI:
    """The least that answers a POST after a commit: one row, no caller, no idempotency, nothing to look up."""
    database = Database(settings.resolved_database_url())
    Rows.metadata.create_all(database.engine)
    bare = FastAPI()

    @bare.post("/rows", status_code=202)
    def create(body: RowIn) -> RowOut:
        row = Row(subject_id=body.subject_id, created_at=datetime.datetime.now(datetime.UTC))
        with database.writing(in_turn=False) as session:
            session.add(row)
        return RowOut(id=row.id, subject_id=row.subject_id, created_at=row.created_at)

    @bare.get("/healthz")
    def healthz() -> str:
        return "ok"

    return bare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=4, help="how long each load lasts")
    parser.add_argument("--rounds", type=int, default=3, help="how often floor and gateway take turns")
    parser.add_argument("--stored", type=int, default=1_000_000, help="requests that are stored for the second part")
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--parts", nargs="+", default=["intake", "stored"], choices=["intake", "stored"])
    parser.add_argument("--floor", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.floor:
        supervisor.serve(Settings(), listener=None, on_ready=lambda: None, create=floor)
        return
    if "intake" in asked.parts and shutil.which("wrk") is None:
        sys.exit("wrk makes the load: apt-get install wrk, or --parts stored")
    path = RESULTS / "gateway.json"
    measured: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for kind in asked.databases:
        of_it = measured.setdefault(kind, {})
        if "intake" in asked.parts:
            with installed(kind) as settings:
                of_it["intake"] = intake(settings, seconds=asked.seconds, rounds=asked.rounds)
            show_intake(kind, of_it["intake"])
        if "stored" in asked.parts:
            with installed(kind) as settings:
                of_it["stored"] = stored(settings, number=asked.stored)
            show_stored(kind, of_it["stored"])
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(measured, indent=2) + "\n")


@contextlib.contextmanager
def installed(kind: str) -> Iterator[Settings]:
    """A set-up installation on a database of its own, which is gone afterwards."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="lethe-bench-"))
        stack.callback(shutil.rmtree, folder)
        folder.chmod(0o755)
        settings = Settings(data_dir=folder / "data", port=free_port())
        if kind == "postgresql":
            (folder / "server").mkdir(mode=0o755)
            server = DurableServer(folder / "server")
            stack.callback(server.stop)
            settings = settings.model_copy(update={"database_url": SecretStr(server.url("postgres"))})
        installation.set_up(settings)
        yield settings


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def served(settings: Settings, *command: str) -> Iterator[str]:
    """The address of a process that serves; `lethe serve` unless another command is given."""
    environment = supervisor._environment(settings)
    process = subprocess.Popen(
        command or [Path(sys.executable).with_name("lethe"), "serve"], env=environment, stdout=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{settings.port}"
    try:
        for _ in range(600):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{address}/healthz").is_success:
                    break
            assert process.poll() is None
            time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait()


def intake(settings: Settings, *, seconds: int, rounds: int) -> list[dict[str, Any]]:
    """What wrk counted, for each number of clients: of the floor, and of the gateway as often, in turns."""
    key = settings.resolved_admin_key_file().read_text().strip()
    with served(settings) as address, httpx.Client(base_url=address, headers=bearer(key), timeout=600) as client:
        learn(settings, client)
    found = []
    other = settings.model_copy(update={"port": free_port()})
    floor_command = (sys.executable, "-m", "benchmarks.gateway", "--floor")
    first = 0
    with served(settings) as ours, served(other, *floor_command) as bare:
        for clients in CLIENTS:
            counted: dict[str, list[dict[str, float]]] = {"floor": [], "held": [], "nothing held": []}
            for _ in range(rounds):
                for what in counted:
                    if what == "floor":
                        load = wrk(bare, "/rows", '{"subject_id": "s%d"}', clients, seconds, first)
                    else:
                        person = "p%d" if what == "held" else "stranger-%d"
                        body = '{"subject_id": "' + person + '", "regulation": "gdpr"}'
                        load = wrk(ours, "/v1/deletion-requests", body, clients, seconds, first, key)
                    first += int(load["answered"]) + clients + 1
                    counted[what].append(load)
            least = statistics.median(per_second(load) for load in counted["floor"])
            for what, loads in counted.items():
                rate = statistics.median(per_second(load) for load in loads)
                found.append(
                    {
                        "clients": clients,
                        "what": what,
                        "per_second": rate,
                        "of_floor": rate / least,
                        "p50_ms": statistics.median(load["p50"] for load in loads),
                        "p99_ms": statistics.median(load["p99"] for load in loads),
                        "longest_ms": max(load["longest"] for load in loads),
                        "refused": sum(load["refused"] for load in loads),
                        "lost": sum(load["lost"] for load in loads),
                    }
                )
    if first > PEOPLE:
        print(f"warning: {first} asked for, {PEOPLE} held", file=sys.stderr)
    return found


def learn(settings: Settings, client: httpx.Client) -> None:
    """A dataset of `PEOPLE`, one row each, and a live model of it."""
    generator = np.random.default_rng(0)
    file = settings.data_dir / "tmp" / "people.npz"
    x = generator.normal(size=(PEOPLE, 3)).astype(np.float32)
    np.savez(file, x=x, y=(x[:, 0] > 0).astype(int), subject=np.array([f"p{number}" for number in range(PEOPLE)]))
    with file.open("rb") as content:
        dataset = client.post("/v1/datasets", data={"name": "people"}, files={"file": content}).raise_for_status()
    file.unlink()
    body = {"name": "model", "dataset_id": dataset.json()["id"], "l2": 0.05}
    client.post("/v1/models", json=body).raise_for_status()
    with installation.opened(settings) as at:
        while runner.run_next(at, worker="bench"):
            pass


def wrk(
    address: str, path: str, body: str, clients: int, seconds: int, first: int, key: str | None = None
) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_WRK)
        script.flush()
        arguments = ["-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "30s", "-s", script.name, address]
        said = subprocess.run(
            ["wrk", *arguments, "--", path, body, str(first), *([key] if key else [])],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    counted: dict[str, float] = json.loads(said.strip().splitlines()[-1])
    return counted


def per_second(load: dict[str, float]) -> float:
    return load["answered"] / load["microseconds"] * 1e6


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def show_intake(kind: str, found: list[dict[str, Any]]) -> None:
    table = Table("clients", "what", "/s", "of floor", "p50 ms", "p99 ms", "refused", "lost", title=f"intake, {kind}")
    for row in found:
        table.add_row(
            str(row["clients"]),
            row["what"],
            f"{row['per_second']:.0f}",
            f"{row['of_floor']:.0%}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['refused']:.0f}",
            f"{row['lost']:.0f}",
        )
    Console().print(table)


def stored(settings: Settings, *, number: int) -> dict[str, Any]:
    """Milliseconds (p50, p95) of what reads `number` stored requests."""
    key = settings.resolved_admin_key_file().read_text().strip()
    with installation.opened(settings) as at:
        began = time.perf_counter()
        fill(at, number)
        filled = time.perf_counter() - began
    found: dict[str, Any] = {"requests": number, "fill_seconds": filled, "http": {}, "worker": {}}
    with served(settings) as address, httpx.Client(base_url=address, headers=bearer(key), timeout=600) as client:
        began = time.perf_counter()
        [newest] = client.get("/v1/deletion-requests?limit=1").raise_for_status().json()["items"]
        found["first_page_after_start_ms"] = (time.perf_counter() - began) * 1e3
        found["http"]["by id"] = timed(lambda: client.get(f"/v1/deletion-requests/{newest['id']}"))
        with installation.opened(settings) as at:
            middle, last = (cursor_at(at, number, part) for part in (0.5, 0.99999))
        queries = {
            "all": "",
            "completed": "status=completed&",
            "accepted": "status=accepted&",
            "cancelled": "status=cancelled&",
            "subject_id": "subject_id=nobody&",
            "external_id": "external_id=case-500000&",
            "model_id, most": "model_id=mdl_bench_0&",
            "model_id, few": "model_id=mdl_bench_1&",
        }
        for name, query in queries.items():
            for place, cursor in {"first": "", "middle": f"cursor={middle}&", "last": f"cursor={last}&"}.items():
                path = f"/v1/deletion-requests?{query}{cursor}limit=50"
                found["http"][f"{name}, {place} page"] = timed(lambda path=path: client.get(path))  # type: ignore[misc]
    with installation.opened(settings) as at:
        asked: dict[str, Callable[[Session], object]] = {
            "datasets_due": lambda session: unlearning.datasets_due(session, at=now(session)),
            "anything_to_do": service.anything_to_do,
            "pending_erasures": lambda s: deletion.pending_erasures(s, dataset_id="ds_bench", limit=500),
            "expired_runs": lambda session: unlearning.expired_runs(session, at=now(session)),
            "count_waiting": lambda session: deletion.count_waiting(session, dataset_id="ds_bench"),
        }
        for name, ask in asked.items():
            found["worker"][name] = timed(lambda ask=ask: in_session(at, ask), times=5)  # type: ignore[misc]
    return found


def fill(at: Installation, number: int) -> None:
    """Requests one second apart: of a hundred, 96 forgotten, two about strangers, one cancelled, one waiting."""
    postgres = at.database.engine.dialect.name == "postgresql"
    learned = calibration.mechanism_for(
        num_slots=number,
        num_classes=2,
        num_parameters=2,
        epsilon=1.0,
        delta=1e-6,
        l2=0.05,
        noise_scale=None,
        step_size=None,
        radius=None,
        learn_steps=None,
    )
    mechanism = json.dumps(learned.to_json())
    series = (
        "SELECT n FROM generate_series(1, :number) AS n"
        if postgres
        else "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :number) SELECT n FROM s"
    )
    name = "md5(n::text)" if postgres else "printf('%08x%08x', (n * 2654435761) % 4294967296, n)"
    moment = (
        "now() - (:number - n) * interval '1 second'"
        if postgres
        else "strftime('%Y-%m-%d %H:%M:%f', 'now', (n - :number) || ' seconds') || '000'"
    )
    due = "now() + interval '20 days'" if postgres else "strftime('%Y-%m-%d %H:%M:%f', 'now', '20 days') || '000'"
    case = "CASE n % 100 WHEN 0 THEN '{}' WHEN 1 THEN '{}' WHEN 2 THEN '{}' WHEN 3 THEN '{}' ELSE '{}' END"
    status = case.format("accepted", "cancelled", "completed", "completed", "completed")
    statements = [
        f"""INSERT INTO datasets (id, name, classes, num_features, num_slots, digest, revision, attempts, created_at)
            SELECT 'ds_bench', 'bench', '["a", "b"]', 1, :number, '', 1000, 0, {moment}
            FROM (SELECT :number AS n) AS one""",
        *(
            f"""INSERT INTO models
                (id, name, dataset_id, mechanism, epsilon, delta, status, wanted, attempts, deaths, created_at)
                SELECT 'mdl_bench_{which}', '', 'ds_bench', :mechanism, 1, 1e-6, 'learning', 'learn', 0, 0, {moment}
                FROM (SELECT :number AS n) AS one"""
            for which in (0, 1)
        ),
        f"""INSERT INTO deletion_requests (id, subject_ref, regulation, status, outcome, external_id, metadata,
                submitted_at, due_at, created_at, completed_at)
            SELECT 'dr_' || {name}, 'sub_' || {name}, 'gdpr', {status},
                CASE WHEN n % 100 < 2 THEN NULL WHEN n % 100 < 4 THEN 'nothing_held' ELSE 'forgotten' END,
                'case-' || n, '{{}}', {moment}, {due}, {moment}, CASE WHEN n % 100 < 2 THEN NULL ELSE {moment} END
            FROM ({series}) AS numbers""",
        f"""INSERT INTO erasures (id, request_id, dataset_id, revision, num_records, num_claimed, nulled_at)
            SELECT 'era_' || {name}, 'dr_' || {name}, 'ds_bench', CASE WHEN n % 100 < 2 THEN NULL ELSE n / 1000 + 1 END,
                CASE WHEN n % 100 < 2 THEN NULL ELSE 1 END, CASE WHEN n % 100 < 2 THEN 0 ELSE 1 END,
                CASE WHEN n % 100 < 2 THEN NULL ELSE {moment} END
            FROM ({series}) AS numbers WHERE n % 100 NOT IN (2, 3)""",
        f"""INSERT INTO request_models (request_id, model_id, status, version)
            SELECT 'dr_' || {name}, 'mdl_bench_0',
                CASE n % 100 WHEN 0 THEN 'pending' WHEN 1 THEN 'cancelled' ELSE 'completed' END, n / 1000 + 1
            FROM ({series}) AS numbers WHERE n % 100 NOT IN (2, 3)""",
        f"""INSERT INTO request_models (request_id, model_id, status, version)
            SELECT 'dr_' || {name}, 'mdl_bench_1', 'completed', 1 FROM ({series}) AS numbers WHERE n % 2000 = 7""",
        *(
            f"""INSERT INTO request_events (request_id, status, at)
                SELECT 'dr_' || {name}, '{passed}', {moment} FROM ({series}) AS numbers WHERE {which}"""
            for passed, which in (
                ("received", "n > 0"),
                ("accepted", "n % 100 NOT IN (2, 3)"),
                ("completed", "n % 100 > 1"),
            )
        ),
        f"""INSERT INTO records (dataset_id, slot, subject_ref)
            SELECT 'ds_bench', n, 'sub_' || {name} FROM ({series}) AS numbers WHERE n % 100 < 2""",
    ]
    with at.database.writing() as session:
        if postgres:
            session.execute(sa.text("SET LOCAL statement_timeout = 0"))
        for statement in statements:
            session.execute(
                sa.text(statement.replace("::text", "\\:\\:text")),
                {"number": number} | ({"mechanism": mechanism} if ":mechanism" in statement else {}),
            )
    if postgres:  # as its autovacuum would, a minute later
        with at.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT", lethe_in_turn=False) as c:
            c.exec_driver_sql("SET statement_timeout = 0")
            c.exec_driver_sql("VACUUM ANALYZE")


def cursor_at(at: Installation, number: int, part: float) -> str:
    """The cursor of the page that begins when `part` of all requests have been passed."""
    query = sa.select(DeletionRequest.created_at, DeletionRequest.id).order_by(
        DeletionRequest.created_at.desc(), DeletionRequest.id.desc()
    )
    with at.database.reading() as session:
        created_at, request_id = session.execute(query.offset(int(part * number)).limit(1)).one()
    return base64.urlsafe_b64encode(json.dumps([created_at.isoformat(), request_id]).encode()).decode().rstrip("=")


def timed(ask: Callable[[], object], *, times: int = 40) -> dict[str, float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        answer = ask()
        taken.append((time.perf_counter() - began) * 1e3)
        if isinstance(answer, httpx.Response):
            answer.raise_for_status()
    taken.sort()
    return {"p50_ms": statistics.median(taken), "p95_ms": taken[int(len(taken) * 0.95)]}


def in_session(at: Installation, ask: Callable[[Session], object]) -> object:
    with at.database.reading() as session:
        return ask(session)


def show_stored(kind: str, found: dict[str, Any]) -> None:
    table = Table("", "p50 ms", "p95 ms", title=f"{found['requests']:,} requests stored, {kind}")
    for part in ("http", "worker"):
        for name, row in found[part].items():
            table.add_row(name, f"{row['p50_ms']:.2f}", f"{row['p95_ms']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
