"""The pages of the dashboard with 100,000 requests stored: `./dev bench dashboard`.

Each page is asked for forty times by somebody who is logged in, on SQLite and on PostgreSQL; a tenth of the requests
wait, and there are twenty models. Prints what people wait for (p50, p95), the processor time that the gateway spends on
a page, which other work on the machine does not change, and which pages take longer than they may. Writes
benchmarks/results/dashboard.json.
"""

import argparse
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from app import installations
from app.backup import tombstones
from app.config import Settings
from benchmarks.installed import installed, served
from benchmarks.stored import fill, timed

RESULTS = Path(__file__).parent / "results"
MOST_MS = 200
"""What the 95th percentile of every page stays below."""
_TIMES = 40


def measured(settings: Settings, number: int) -> dict[str, Any]:
    key = settings.resolved_admin_key_file().read_text().strip()
    with installations.opened(settings) as installation:
        fill(installation, number, 10)
        tombstones.record(installation)  # or the gateway would, while it is measured
    with served(settings) as (address, pid), httpx.Client(base_url=address, timeout=60) as browser:
        gateway = psutil.Process(pid)
        log_in(browser, key)
        first = browser.get("/admin/requests").raise_for_status().text
        [onward] = re.findall(r'rel="next" href="([^"]+)"', first)
        newest = re.findall(r'href="/admin/requests/(dr_\w+)"', first)[0]
        token = re.findall(r'name="form-token" content="(\w+)"', first)[0]
        pages = {
            "overview": "/admin",
            "overview, its live part": "/admin/live",
            "requests": "/admin/requests",
            "requests, next page": f"/admin/requests{onward.replace('&amp;', '&')}",
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


def of_page(gateway: psutil.Process, ask: Callable[[], httpx.Response]) -> dict[str, float]:
    before = spent(gateway)
    found = timed(ask, times=_TIMES)
    return found | {"cpu_ms": (spent(gateway) - before) / _TIMES * 1e3}


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
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="+", default=["sqlite", "postgresql"])
    asked = parser.parse_args()
    results: dict[str, Any] = {"requests": asked.requests, "load": os.getloadavg()[0], "pages": {}}
    for kind in asked.kinds:
        with installed(kind) as settings:
            results["pages"][kind] = found = measured(settings, asked.requests)
        title = f"{asked.requests:,} requests stored, {kind}"
        table = Table("page", "p50 ms", "p95 ms", "cpu ms", "", title=title)
        for name, row in found.items():
            verdict = "good" if row["p95_ms"] <= MOST_MS else f"longer than {MOST_MS} ms"
            table.add_row(name, *(f"{row[column]:.1f}" for column in ("p50_ms", "p95_ms", "cpu_ms")), verdict)
        Console().print(table)
    rows = [(kind, name, row) for kind, of in results["pages"].items() for name, row in of.items()]
    results["slower_than_200_ms"] = slow = [(kind, name) for kind, name, row in rows if row["p95_ms"] > MOST_MS]
    slowest = max(row["p95_ms"] for *_, row in rows)
    dearest = max(row["cpu_ms"] for *_, row in rows)
    Console().print(
        f"{len(rows) - len(slow)} of {len(rows)} pages keep p95 <= {MOST_MS} ms; the slowest p95 is {slowest:.0f} ms, "
        f"the dearest page takes {dearest:.0f} ms of processor time; load average {results['load']:.1f} at the start"
    )
    (RESULTS / "dashboard.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
