"""Measurements quoted in docs/accounting.md and docs/performance.md."""

import re

from benchmarks import page

ACCOUNTING = (page.ROOT / "docs" / "accounting.md").read_text()
PERFORMANCE = (page.ROOT / "docs" / "performance.md").read_text()
ENGINE = {
    "reading the rows once": "read once, compiled",
    "Lethe's pass": "ours",
    "Lethe's whole step, with noise and projection": "a step of the chain",
    "two products, numpy": "two products, numpy",
    "per-sample gradients, torch.func": "per-sample, torch.func",
    "per-sample gradients, as published with the papers": "per-sample, as published",
}


def test_the_table_of_steps_matches_the_results() -> None:
    """For each batch size in the table, the step counts match the accountants' stored results."""
    names = ("batch", "langevin", "d2d", "replace", "zero_out")
    found = {row["batch"]: [f"{row[name]:,}" for name in names] for row in page.read("accounting")["steps"]}
    rows = re.findall(r"^\| ([\d, |]+) \|$", ACCOUNTING, re.MULTILINE)
    quoted = [row.split(" | ") for row in rows]
    assert len(quoted) == 3
    assert quoted == [found[int(row[0])] for row in quoted]


def test_the_table_of_passes_matches_the_results() -> None:
    """The table of passes contains the measured medians, rounded to two digits."""
    passes = page.read("engine")["passes"]
    for row, name in ENGINE.items():
        found = [passes[classes]["milliseconds"][name] for classes in ("2", "10")]
        [quoted] = re.findall(rf"^\| {re.escape(row)} \| (\S+) \| (\S+) \|$", PERFORMANCE, re.MULTILINE)
        assert [f"{float(number):.2g}" for number in quoted] == [f"{number:.2g}" for number in found], row
