"""The table of periodic jobs in docs/operations.md matches the code."""

import re
from pathlib import Path

from app.operations import periodic_jobs

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()
UNITS = {"s": 1, "min": 60, "h": 3600}


def test_every_periodic_job_is_listed() -> None:
    """The table in the documentation lists exactly the periodic jobs of workers and gateways, each with its interval
    and the feature it belongs to."""
    section = PAGE.partition("## Periodic jobs\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) (\w+)\b.*?(?:\(feature `(\w+)`\) )?\|$", section, re.MULTILINE)
    listed = [
        (name, int(count) * UNITS[unit])
        for name, count, unit, feature in rows
        if not feature or (ROOT / "app" / "features" / feature).exists()
    ]
    assert sorted(listed) == sorted(
        (job.name, job.seconds) for job in (*periodic_jobs.of_workers(), *periodic_jobs.of_gateways())
    )


def test_gateway_jobs_are_marked() -> None:
    """The table in the documentation marks the jobs that run in gateways."""
    of_gateways = re.findall(r"^\| `(\w+)` \| [^|]*\bgateways\b", PAGE, re.MULTILINE)
    assert of_gateways == [job.name for job in periodic_jobs.of_gateways()]
