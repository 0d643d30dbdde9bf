"""What a gateway and its workers read while a million requests are stored: the second part of `./dev bench gateway`."""

import base64
import datetime
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import httpx
import psutil
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table
from sqlalchemy.orm import Session

from app import installations
from app.config import Settings
from app.db import now
from app.db.sealed import Particulars
from app.db.tables import DeletionRequest, Model
from app.deletion import repository as deletion
from app.features.archives import restoring
from app.installations import Installation
from app.operations import repository as operations
from app.unlearning import due_repository, repository as unlearning
from benchmarks.installed import bearer, served
from lethe.proof import calibration


def stored(settings: Settings, *, number: int, waiting: int) -> dict[str, Any]:
    """Milliseconds (p50, p95) of what reads `number` stored requests, `waiting` in a hundred of which wait."""
    key = settings.resolved_admin_key_file().read_text().strip()
    with installations.opened(settings) as installation:
        began = time.perf_counter()
        fill(installation, number, waiting)
        filled = time.perf_counter() - began
        restoring.record_restored(installation)  # else the gateway writes down a million old requests meanwhile
    found: dict[str, Any] = {
        "requests": number,
        "waiting": number * waiting // 100,
        "fill_seconds": filled,
        "http": {},
        "worker": {},
    }
    with served(settings) as (address, pid), httpx.Client(base_url=address, headers=bearer(key), timeout=600) as client:
        began = time.perf_counter()
        [newest] = client.get("/v1/deletion-requests?limit=1").raise_for_status().json()["items"]
        found["first_page_after_start_ms"] = (time.perf_counter() - began) * 1e3
        found["http"]["by id"] = timed(lambda: client.get(f"/v1/deletion-requests/{newest['id']}"))
        with installations.opened(settings) as installation:
            middle, last = (cursor_at(installation, number, part) for part in (0.5, 0.99999))
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
        found["export"] = export(client, pid)
    with installations.opened(settings) as installation:
        asked: dict[str, Callable[[Session], object]] = {
            "datasets_due": lambda session: due_repository.datasets_due(session, at=now(session)),
            "anything_to_do": due_repository.anything_to_do,
            "pending_erasures": lambda s: deletion.pending_erasures(s, dataset_id="ds_bench_0", limit=500),
            "expired_runs": lambda session: unlearning.expired_runs(session, at=now(session)),
            "count_waiting": lambda s: deletion.count_waiting(s, dataset_id="ds_bench_0", at_most=500),
            "waiting": lambda s: operations.waiting(s, at=now(s), horizon=datetime.timedelta(days=7)),
        }
        for name, ask in asked.items():
            found["worker"][name] = timed(lambda ask=ask: in_session(installation, ask), times=15)  # type: ignore[misc]
        with installation.database.writing() as session:
            session.execute(sa.update(Model).values(max_wait_seconds=30 * 86400, max_requests=number))
        idle = timed(lambda: in_session(installation, due_repository.anything_to_do), times=15)
        found["worker"]["anything_to_do, where all wait for each other"] = idle
        with installation.database.writing() as session:
            held_until = now(session) + datetime.timedelta(days=1)
            session.execute(
                sa.update(DeletionRequest).where(DeletionRequest.status == "accepted").values(held_until=held_until)
            )
        found["worker"]["anything_to_do, where all are held"] = timed(
            lambda: in_session(installation, due_repository.anything_to_do), times=15
        )
    return found


def export(client: httpx.Client, pid: int) -> dict[str, float]:
    """All requests as CSV: rows a second, when the first bytes came, by how much the gateway's memory grew."""
    gateway = psutil.Process(pid)
    before = most = gateway.memory_info().rss
    rows, first = -1, 0.0
    began = time.perf_counter()
    with client.stream("GET", "/v1/deletion-requests.csv") as answer:
        for part in answer.raise_for_status().iter_bytes(1 << 20):
            first = first or time.perf_counter() - began
            rows += part.count(b"\n")
            most = max(most, gateway.memory_info().rss)
    return {
        "rows_per_second": rows / (time.perf_counter() - began),
        "rows": rows,
        "first_bytes_ms": first * 1e3,
        "grew_by_megabytes": (most - before) / 2**20,
    }


def show_stored(kind: str, found: dict[str, Any]) -> None:
    table = Table("", "p50 ms", "p95 ms", title=f"{found['requests']:,} requests stored, {kind}")
    for part in ("http", "worker"):
        for name, row in found[part].items():
            table.add_row(name, f"{row['p50_ms']:.2f}", f"{row['p95_ms']:.2f}")
    Console().print(table)
    export = found["export"]
    Console().print(
        f"export: {export['rows_per_second']:,.0f} rows/s, first bytes after {export['first_bytes_ms']:.0f} ms, "
        f"{export['grew_by_megabytes']:.0f} MiB more"
    )


def fill(
    installation: Installation, number: int, waiting: int, *, models: int = 20, over_days: int | None = None
) -> None:
    """Requests on datasets with a model each, in turn. Of a hundred, one is cancelled, two are about strangers; every
    tenth has an external id.

    Without `over_days` they are one second apart, `waiting` in a hundred wait, the others were forgotten at once, and
    one model has all of them. With it they are spread over so many days, each on the model of its dataset: they are due
    after 30 days and take from 2 to 36 (half of them 10 or less, nine in ten 30 or less), and `waiting` in a hundred of
    the last 90 days wait for longer, most of these with an extension by two months.
    """
    postgres = installation.database.engine.dialect.name == "postgresql"
    learned = calibration.mechanism_for(
        calibration.ModelSettings(
            epsilon=1.0, delta=1e-6, l2=0.05, noise_scale=None, step_size=None, radius=None, learn_steps=None
        ),
        num_slots=number,
        num_classes=2,
        num_parameters=2,
    )
    mechanism = json.dumps(learned.to_json())

    def series(last: str = ":number") -> str:
        if postgres:
            return f"(SELECT n FROM generate_series(1, {last}) AS n) AS numbers"
        counted = f"SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {last}"
        return f"(WITH RECURSIVE s(n) AS ({counted}) SELECT n FROM s) AS numbers"

    def after(seconds: str) -> str:
        if postgres:
            return f"now() + ({seconds}) * interval '1 second'"
        return f"strftime('%Y-%m-%d %H:%M:%f', 'now', ({seconds}) || ' seconds') || '000'"

    name = "md5(n::text)" if postgres else "printf('%08x%08x', (n * 2654435761) % 4294967296, n)"
    tenant, dataset, day = "(SELECT id FROM tenants)", f"'ds_bench_' || ((n / 100) % {models})", 86400
    cancelled, stranger = "n % 100 = 97", "n % 100 > 97"
    if over_days is None:
        age, took, limit, reported = "(:number - n)", "0", f"{20 * day}", "CAST(NULL AS timestamptz)"
        waits, model = f"n % 100 < {waiting}", "'mdl_bench_0'"
    else:
        step, part = over_days * day * 1000 // number, "(n % 1000 * 7919 % 1000)"  # milliseconds; thousandths
        age, took = (
            f"(CAST(:number - n AS bigint) * {step} / 1000)",
            f"({2 * day} + {34 * day} / 1000 * {part} / 1000 * {part})",
        )
        waits_long = f"(n % 100 < {waiting} AND {age} < {90 * day})"
        waits = f"(NOT {cancelled} AND NOT {stranger} AND ({waits_long} OR {took} > {age}))"
        limit = f"CASE WHEN {waits_long} AND {age} > {28 * day} AND n % 50 > 0 THEN {92 * day} ELSE {30 * day} END"
        model, reported = f"'mdl_bench_' || ((n / 100) % {models})", after(f"{took} - {age}")
        took = f"CASE WHEN {stranger} THEN 0 ELSE {took} END"
    moment, due, done = after(f"-{age}"), after(f"{limit} - {age}"), after(f"{took} - {age}")
    ended = f"NOT ({waits} OR {cancelled})"
    statements = [
        f"""INSERT INTO datasets
            (id, tenant_id, name, classes, lost_models, num_features, num_slots, digest, revision, attempts, created_at)
            SELECT 'ds_bench_' || (n - 1), {tenant}, 'bench', '["a", "b"]', '{{}}', 1, :number, '', 1000, 0, {moment}
            FROM {series(str(models))}""",
        f"""INSERT INTO models (id, tenant_id, name, dataset_id, mechanism, epsilon, delta, status, live_version,
                lost_releases, attempts, deaths, created_at)
            SELECT 'mdl_bench_' || (n - 1), {tenant}, '', 'ds_bench_' || (n - 1), :mechanism, 1, 1e-6, 'live', 1,
                '[]', 0, 0, {moment}
            FROM {series(str(models))}""",
        f"""INSERT INTO runs (id, tenant_id, kind, status, dataset_id, model_id, revision, version_id, steps_total,
                steps_done, records, reason, reason_facts, worker, lease_expires_at, started_at, finished_at)
            SELECT 'run_' || (n - 1), {tenant}, 'learn', 'published', 'ds_bench_' || (n - 1), 'mdl_bench_' || (n - 1),
                1000, 'ver_' || (n - 1), 1, 1, 0, 'requested', '{{}}', 'w', {moment}, {moment}, {moment}
            FROM {series(str(models))}""",
        f"""INSERT INTO versions (id, model_id, number, status, run_id, revision, weights_sha256, metrics, published_at)
            SELECT 'ver_' || (n - 1), 'mdl_bench_' || (n - 1), 1, 'live', 'run_' || (n - 1), 1000, '', '{{}}', {moment}
            FROM {series(str(models))}""",
        f"""INSERT INTO deletion_requests (id, tenant_id, subject_ref, regulation, time_zone, status, outcome,
                external_ref, kept, discreet, submitted_at, due_at, deadline, created_at, completed_at, ended_at,
                reported_at)
            SELECT 'dr_' || {name}, {tenant}, 'sub_' || {name}, 'gdpr', 'UTC',
                CASE WHEN {waits} THEN 'accepted' WHEN {cancelled} THEN 'cancelled' ELSE 'completed' END,
                CASE WHEN {stranger} THEN 'nothing_held' WHEN {ended} THEN 'forgotten' END,
                CASE WHEN n % 10 = 0 THEN 'case-' || n END, 'request', false, {moment}, {due}, {due}, {moment},
                CASE WHEN {ended} THEN {done} END,
                CASE WHEN {ended} OR {cancelled} THEN {done} END,
                CASE WHEN NOT {cancelled} THEN {reported} END
            FROM {series()}""",
        f"""INSERT INTO erasures
            (id, request_id, dataset_id, revision, num_records, num_claimed, nulled_at, deadline, ready_at)
            SELECT 'era_' || {name}, 'dr_' || {name}, {dataset}, CASE WHEN {ended} THEN n / 1000 + 1 END,
                CASE WHEN {ended} THEN 1 END, CASE WHEN {ended} THEN 1 ELSE 0 END, CASE WHEN {ended} THEN {moment} END,
                {due}, CASE WHEN NOT {cancelled} THEN {moment} END
            FROM {series()} WHERE NOT {stranger}""",
        f"""INSERT INTO request_models (request_id, model_id, status, version, requested_at)
            SELECT 'dr_' || {name}, {model},
                CASE WHEN {waits} THEN 'pending' WHEN {cancelled} THEN 'cancelled' ELSE 'completed' END,
                CASE WHEN {ended} THEN n / 1000 + 1 END, {moment}
            FROM {series()} WHERE NOT {stranger}""",
        f"""INSERT INTO request_models (request_id, model_id, status, version, requested_at)
            SELECT 'dr_' || {name}, 'mdl_bench_1', 'completed', 1, {moment} FROM {series()} WHERE n % 2000 = 57
                AND {model} <> 'mdl_bench_1'""",
        *(
            f"""INSERT INTO request_events (request_id, kind, status, actor, at)
                SELECT 'dr_' || {name}, '{passed}', '{passed}', 'bench', {moment} FROM {series()} WHERE {which}"""
            for passed, which in (("received", "n > 0"), ("accepted", f"NOT {stranger}"), ("completed", ended))
        ),
        f"""INSERT INTO records (dataset_id, slot, subject_ref)
            SELECT {dataset}, n, 'sub_' || {name} FROM {series()} WHERE NOT ({ended})""",
    ]
    with installation.database.writing() as session:
        if postgres:
            session.execute(sa.text("SET LOCAL statement_timeout = 0"))
        for statement in statements:
            given = {"number": number, "mechanism": mechanism}
            used = {one: value for one, value in given.items() if f":{one}" in statement}
            session.execute(sa.text(statement.replace("::text", "\\:\\:text")), used)
    _seal(installation)
    if postgres:  # as its autovacuum would, a minute later
        with installation.database.engine.connect().execution_options(
            isolation_level="AUTOCOMMIT", lethe_exclusive=False
        ) as c:
            c.exec_driver_sql("SET statement_timeout = 0")
            c.exec_driver_sql("VACUUM ANALYZE")


def _seal(installation: Installation) -> None:
    """External ids as the service stores them."""
    table = DeletionRequest.metadata.tables[DeletionRequest.__tablename__]
    with installation.database.writing() as session:
        named = session.execute(
            sa.text("SELECT id, external_ref FROM deletion_requests WHERE external_ref IS NOT NULL")
        )
        rows = [
            {"its_id": one, "ref": name, "written": Particulars(external_id=name), "what": "details"}
            for one, name in named
        ]
        statement = (
            sa.update(table)
            .where(table.c.id == sa.bindparam("its_id"))
            .values(external_ref=sa.bindparam("ref"), particulars=sa.bindparam("written"), kept=sa.bindparam("what"))
        )
        session.connection().execute(statement, rows)


def cursor_at(installation: Installation, number: int, part: float) -> str:
    """The cursor of the page that begins when `part` of all requests have been passed."""
    query = sa.select(DeletionRequest.created_at, DeletionRequest.id).order_by(
        DeletionRequest.created_at.desc(), DeletionRequest.id.desc()
    )
    with installation.database.reading() as session:
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


def in_session(installation: Installation, ask: Callable[[Session], object]) -> object:
    with installation.database.reading() as session:
        return ask(session)
