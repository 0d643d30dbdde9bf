"""The pages of the dashboard with a million requests stored: `./dev bench dashboard`.

Each page is asked for forty times by somebody who is logged in, on SQLite and on PostgreSQL. The requests are spread
over two years and a hundred models; they take from 2 to 36 days, and some of the last 90 days wait for longer,
thousands of them for a decision. Prints what people wait for (p50, p95), the processor time that the gateway spends on
a page, which other work on the machine does not change, and which pages take longer than they may. Writes
benchmarks/results/dashboard.json.
"""

import argparse
import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from app import installations
from app.config import Settings
from app.db.tables import DeletionRequest
from app.features.archives import restoring
from app.installations import Installation
from benchmarks.installed import free_port, installed, served
from benchmarks.stored import fill, timed

_FILE = Path(__file__).parent / "results" / "dashboard.json"
MAX_MS = 300
"""What the 95th percentile of every page stays below."""
_TIMES = 40
_IN_REVIEW = 4_000


def measured(settings: Settings, number: int, models: int) -> dict[str, Any]:
    key = settings.resolved_admin_key_file().read_text().strip()
    with installations.opened(settings) as installation:
        with installation.database.reading() as session:
            is_empty = session.scalars(sa.select(DeletionRequest.id).limit(1)).first() is None
        if is_empty:
            fill(installation, number, 10, models=models, over_days=2 * 365)
            put_in_review(installation)
            restoring.record_restored(installation)  # or the gateway would write all down, while it is measured
    with served(settings) as (address, pid), httpx.Client(base_url=address, timeout=60) as browser:
        gateway = psutil.Process(pid)
        log_in(browser, key)
        rest(gateway)
        first = browser.get("/admin/requests").raise_for_status().text
        [onward] = re.findall(r'rel="next" href="([^"]+)"', first)
        newest = re.findall(r'href="/admin/requests/(dr_\w+)"', first)[0]
        token = re.findall(r'name="form-token" content="(\w+)"', first)[0]
        waits = re.findall(r'<tr id="row-(dr_\w+)"', browser.get("/admin").raise_for_status().text)[0]
        pages = {
            "inbox": "/admin",
            "inbox, its live part": "/admin/inbox/live",
            "inbox, unassigned": "/admin?queue=unassigned",
            "inbox, with a case": f"/admin?case={waits}",
            "a case beside the inbox": f"/admin/inbox/cases/{waits}",
            "calendar": "/admin/calendar",
            "overview": "/admin/overview",
            "overview, its live part": "/admin/live",
            "requests": "/admin/requests",
            "requests, next page": onward.replace("&amp;", "&"),
            "requests, accepted": "/admin/requests?status=accepted",
            "requests, by deadline": "/admin/requests?order=deadline",
            "requests, due soon": "/admin/requests?due=soon",
            "requests, gdpr": "/admin/requests?regulation=gdpr",
            "requests, ccpa": "/admin/requests?regulation=ccpa",
            "one request": f"/admin/requests/{newest}",
            "models": "/admin/models",
            "one model": "/admin/models/mdl_bench_1",
            "new model": "/admin/models/new",
            "accounting of a dataset": "/admin/accounting/datasets/ds_bench_1",
            "datasets": "/admin/datasets",
            "one dataset": "/admin/datasets/ds_bench_1",
            "runs": "/admin/runs",
            "deliveries": "/admin/deliveries",
            "audit log": "/admin/audit-log",
            "settings": "/admin/settings",
        }
        found = {name: of_page(gateway, lambda path=path: browser.get(path)) for name, path in pages.items()}  # type: ignore[misc]
        search = {"csrf": token, "by": "subject_id", "sought": "nobody"}
        sent = {"Origin": address}
        found["a search"] = of_page(gateway, lambda: browser.post("/admin/requests/search", data=search, headers=sent))
        return found


def put_in_review(installation: Installation) -> None:
    """Let thousands of the requests that wait await a decision instead; no statistics of tables are kept."""
    waiting = sa.select(DeletionRequest.id).where(DeletionRequest.status == "accepted")
    oldest = waiting.order_by(DeletionRequest.deadline, DeletionRequest.id).limit(_IN_REVIEW)
    with installation.database.writing() as session:
        session.execute(
            sa.update(DeletionRequest).where(DeletionRequest.id.in_(oldest)).values(status="in_review"),
            execution_options={"synchronize_session": False},
        )


def of_page(gateway: psutil.Process, ask: Callable[[], httpx.Response]) -> dict[str, float]:
    before = spent(gateway)
    found = timed(ask, times=_TIMES)
    return found | {"cpu_ms": (spent(gateway) - before) / _TIMES * 1e3}


def rest(gateway: psutil.Process) -> None:
    """Wait until the gateway has done what it does once, at its start: it reads the whole database."""
    while True:
        before = spent(gateway)
        time.sleep(2)
        if spent(gateway) - before < 0.1:
            return


def spent(process: psutil.Process) -> float:
    """Seconds of processor time."""
    times = process.cpu_times()
    return float(times.user + times.system)


def log_in(browser: httpx.Client, key: str) -> None:
    [token] = re.findall(r'name="csrf" value="(\w+)"', browser.get("/admin/login").text)
    form = {"csrf": token, "key": key, "next": "/admin"}
    answer = browser.post("/admin/login", data=form, headers={"Origin": str(browser.base_url).rstrip("/")})
    assert answer.status_code == 303, answer.text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--kept", type=Path, help="a folder that is filled once, for SQLite alone, and not deleted")
    asked = parser.parse_args()
    results = of_before(asked.requests, asked.models)
    for kind in ["sqlite"] if asked.kept else asked.kinds:
        with kept(asked.kept) if asked.kept else installed(kind) as settings:
            results["load"][kind] = os.getloadavg()[0]
            results["pages"][kind] = found = measured(settings, asked.requests, asked.models)
        title = f"{asked.requests:,} requests and {asked.models} models stored, {kind}"
        table = Table("page", "p50 ms", "p95 ms", "cpu ms", "", title=title)
        for name, row in found.items():
            verdict = "good" if row["p95_ms"] <= MAX_MS else f"longer than {MAX_MS} ms"
            table.add_row(name, *(f"{row[column]:.1f}" for column in ("p50_ms", "p95_ms", "cpu_ms")), verdict)
        Console().print(table)
    rows = [(kind, name, row) for kind, of in results["pages"].items() for name, row in of.items()]
    results["slower_than_300_ms"] = slow = [(kind, name) for kind, name, row in rows if row["p95_ms"] > MAX_MS]
    slowest = max(row["p95_ms"] for *_, row in rows)
    dearest = max(row["cpu_ms"] for *_, row in rows)
    Console().print(
        f"{len(rows) - len(slow)} of {len(rows)} pages keep p95 <= {MAX_MS} ms; the slowest p95 is {slowest:.0f} ms, "
        f"the dearest page takes {dearest:.0f} ms of processor time; load average at the start: {results['load']}"
    )
    _FILE.write_text(json.dumps(results, indent=1) + "\n")


def of_before(requests: int, models: int) -> dict[str, Any]:
    """What was found of the other database, where as much is stored there."""
    fresh: dict[str, Any] = {"requests": requests, "models": models, "load": {}, "pages": {}}
    found: dict[str, Any] = json.loads(_FILE.read_text()) if _FILE.exists() else fresh
    return found if (found.get("requests"), found.get("models")) == (requests, models) else fresh


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[Settings]:
    settings = Settings(data_dir=folder / "data", port=free_port())
    installations.set_up(settings)
    yield settings


if __name__ == "__main__":
    main()
