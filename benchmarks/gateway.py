"""The gateway under load, and with a million requests stored: `./dev bench gateway`.

Intake is measured by wrk (Debian: `apt-get install wrk`) on SQLite and on PostgreSQL, with 1, 8 and 32 clients that
each ask for a new person, beside the floor: a bare FastAPI endpoint that inserts one row with SQLAlchemy, on the same
database, through the same engine and the same uvicorn, in turns in the same run. `nothing held` asks `lethe up` for
strangers, and its processor time includes the worker; `held` asks a gateway without a worker for people whose row a
live model carries.

Then a million requests are put into each database, and what reads them is timed: over HTTP what callers ask, in a
session what workers ask. Writes benchmarks/results/gateway.json.
"""

import argparse
import datetime
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import sqlalchemy as sa
from fastapi import FastAPI
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app import installations, supervisor
from app.config import Settings
from app.db import Database
from benchmarks.installed import bearer, free_port, installed, served
from benchmarks.stored import show_stored, stored
from worker import runner

RESULTS = Path(__file__).parent / "results"
CLIENTS = (1, 8, 32)
PEOPLE = 120_000
BATCHES, BATCH = 3, 5000
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
_FORM = {"name": "people", "classes": '["0", "1"]'}


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
        with database.writing(exclusive=False) as session:
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
    parser.add_argument("--waiting", type=int, default=1, help="how many of a hundred of them wait for a worker")
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
                of_it["stored"] = stored(settings, number=asked.stored, waiting=asked.waiting)
            show_stored(kind, of_it["stored"])
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(measured, indent=2) + "\n")


def intake(settings: Settings, *, seconds: int, rounds: int) -> list[dict[str, Any]]:
    """What wrk counted, for each number of clients: of the floor, and of the gateway as often, in turns."""
    key = settings.resolved_admin_key_file().read_text().strip()
    with served(settings) as (address, _), httpx.Client(base_url=address, headers=bearer(key), timeout=600) as client:
        learn(settings, client)
    found = []
    other = settings.model_copy(update={"port": free_port()})
    floor_command = (sys.executable, "-m", "benchmarks.gateway", "--floor")
    up_command = (str(Path(sys.executable).with_name("lethe")), "up")
    first = 0
    counted: dict[tuple[int, str], list[dict[str, float]]] = {}
    with served(other, *floor_command) as bare:
        for command, whats in ((up_command, ("floor", "nothing held")), ((), ("held",))):
            with served(settings, *command) as ours:
                for clients, _, what in itertools.product(CLIENTS, range(rounds), whats):
                    address, process = bare if what == "floor" else ours
                    before = processor_seconds(process)
                    if what == "floor":
                        load = wrk(address, "/rows", '{"subject_id": "s%d"}', clients, seconds, first)
                    else:
                        person = "p%d" if what == "held" else "stranger-%d"
                        body = '{"subject_id": "' + person + '", "regulation": "gdpr"}'
                        load = wrk(address, "/v1/deletion-requests", body, clients, seconds, first, key)
                    load["cpu_ms"] = 1000 * (processor_seconds(process) - before) / load["answered"]
                    first += int(load["answered"]) + clients + 1
                    counted.setdefault((clients, what), []).append(load)
                if not command:
                    found.append(in_bulk(ours[0], key, first))
    for clients in CLIENTS:
        floor_loads = counted[clients, "floor"]
        least = statistics.median(per_second(load) for load in floor_loads)
        least_cpu = statistics.median(load["cpu_ms"] for load in floor_loads)
        for what in ("floor", "nothing held", "held"):
            loads = counted[clients, what]
            rate = statistics.median(per_second(load) for load in loads)
            cpu = statistics.median(load["cpu_ms"] for load in loads)
            found.append(
                {
                    "clients": clients,
                    "what": what,
                    "per_second": rate,
                    "of_floor": rate / least,
                    "cpu_ms": cpu,
                    "cpu_of_floor": cpu / least_cpu,
                    "p50_ms": statistics.median(load["p50"] for load in loads),
                    "p99_ms": statistics.median(load["p99"] for load in loads),
                    "longest_ms": max(load["longest"] for load in loads),
                    "refused": sum(load["refused"] for load in loads),
                    "lost": sum(load["lost"] for load in loads),
                }
            )
    last = first + BATCHES * BATCH
    if last > PEOPLE:
        print(f"warning: {last} asked for, {PEOPLE} held", file=sys.stderr)
    return found


def processor_seconds(process: int) -> float:
    """Processor time of a process and of its workers so far."""
    parent = psutil.Process(process)
    return sum(sum(one.cpu_times()[:4]) for one in [parent, *parent.children()])


def in_bulk(address: str, key: str, first: int) -> dict[str, Any]:
    """Requests a second where one client sends batches, about people who are held."""
    taken = []
    with httpx.Client(base_url=address, headers=bearer(key), timeout=600) as client:
        for number in range(BATCHES):
            people = range(first + number * BATCH, first + (number + 1) * BATCH)
            body = {"requests": [{"subject_id": f"p{person}", "regulation": "gdpr"} for person in people]}
            began = time.perf_counter()
            answer = client.post("/v1/deletion-requests:batch", json=body, headers={"Idempotency-Key": f"b{number}"})
            taken.append(time.perf_counter() - began)
            assert answer.status_code == 202, answer.text
    return {"clients": 1, "what": f"batches of {BATCH}", "per_second": BATCH / statistics.median(taken)}


def learn(settings: Settings, client: httpx.Client) -> None:
    """A dataset of `PEOPLE`, one row each, and a live model of it."""
    generator = np.random.default_rng(0)
    file = settings.data_dir / "tmp" / "people.npz"
    x = generator.normal(size=(PEOPLE, 3)).astype(np.float32)
    np.savez(file, x=x, y=(x[:, 0] > 0).astype(int), subject=np.array([f"p{number}" for number in range(PEOPLE)]))
    with file.open("rb") as content:
        dataset = client.post("/v1/datasets", data=_FORM, files={"file": content}).raise_for_status()
    file.unlink()
    body = {"name": "model", "dataset_id": dataset.json()["id"], "l2": 0.05}
    client.post("/v1/models", json=body).raise_for_status()
    with installations.opened(settings) as installation:
        while runner.run_next(installation, worker="bench"):
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


def show_intake(kind: str, found: list[dict[str, Any]]) -> None:
    table = Table(
        "clients",
        "what",
        "/s",
        "of floor",
        "cpu ms",
        "of floor",
        "p50 ms",
        "p99 ms",
        "refused",
        "lost",
        title=f"intake, {kind}",
    )
    for row in found:
        table.add_row(
            str(row["clients"]),
            row["what"],
            f"{row['per_second']:.0f}",
            *(
                []
                if "of_floor" not in row
                else [
                    f"{row['of_floor']:.0%}",
                    f"{row['cpu_ms']:.2f}",
                    f"{row['cpu_of_floor']:.2f}",
                    f"{row['p50_ms']:.2f}",
                    f"{row['p99_ms']:.2f}",
                    f"{row['refused']:.0f}",
                    f"{row['lost']:.0f}",
                ]
            ),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
