"""docs/operations.md says what is done without being asked."""

import re
from pathlib import Path

from app.operations.periodic_jobs import OF_GATEWAYS, PERIODIC_JOBS

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
UNITS = {"s": 1, "min": 60, "h": 3600}


def test_every_chore_is_listed() -> None:
    """The table has each chore of workers and of gateways, and no other, with the seconds from one time to the next."""
    section = PAGE.partition("## What is done without being asked\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) (\w+)", section, re.MULTILINE)
    listed = [(name, int(count) * UNITS[unit]) for name, count, unit in rows]
    assert sorted(listed) == sorted((job.name, job.seconds) for job in (*PERIODIC_JOBS, *OF_GATEWAYS))


def test_chores_of_gateways_are_told_apart() -> None:
    """The table says which chores gateways do."""
    of_gateways = re.findall(r"^\| `(\w+)` \| [^|]*\bgateways\b", PAGE, re.MULTILINE)
    assert of_gateways == [job.name for job in OF_GATEWAYS]
