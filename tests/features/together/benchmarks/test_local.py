"""Claims of docs/evidence/local.md about local privacy, at a small size, and its stored measurements."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import local, page
from benchmarks.local import Size

TEXT = (page.EVIDENCE / "local.md").read_text()
PROSE = " ".join(TEXT.split())
SMALL = Size(people=(100, 1000), repeats=400, fixed=300, surveys={100: 300, 400: 100}, asked_with=(3, 10))


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return local.run(SMALL, seed=1)


def test_errors_match_theory(results: dict[str, Any]) -> None:
    """Errors measured with a fixed seed are within six standard errors of their formulas. Errors in the estimated
    reasons for leaving, which devices randomise without a seed, differ from their formulas by at most a factor of about
    1.6. A correct implementation exceeds these limits once in a hundred million runs."""
    seeded = [*results["by_people"], *results["by_odds"]]
    farthest = max(abs(row["measured"] - row["theory"]) / row["spread"] for row in seeded)
    assert farthest < 6
    assert all(0.6 < row["measured"] / row["theory"] < 1.6 for row in results["reasons"])
    assert results["compared"] == len(seeded) + 4 == 4 * 2 + 4 * len(local.ODDS) + 4
    assert results["farthest"] >= farthest


@pytest.mark.slow
def test_the_best_mechanism_depends_on_epsilon(results: dict[str, Any]) -> None:
    """The central model has the smallest error. One bit is better than Laplace noise at small epsilon and worse at
    large epsilon. In one dimension, Gaussian noise is worse than both."""
    found = {(row["estimator"], row["odds"]): row["measured"] for row in results["by_odds"]}
    for odds in local.ODDS:
        assert found["central Laplace", odds] < min(found["one bit", odds], found["local Laplace", odds])
        assert found["local Gaussian", odds] > max(found["one bit", odds], found["local Laplace", odds])
    assert found["one bit", 2] < found["local Laplace", 2]
    assert found["one bit", 100] > found["local Laplace", 100]


@pytest.mark.slow
def test_clipped_means_stay_within_their_bound(results: dict[str, Any]) -> None:
    """The error of clipped means is smaller than its bound, which falls in proportion to 1/sqrt(n)."""
    few, many = results["unbounded"]
    assert few["measured"] < few["bound"]
    assert many["measured"] < many["bound"]
    assert few["bound"] / many["bound"] == pytest.approx(math.sqrt(10), rel=0.02)


def test_simultaneous_intervals_cover(results: dict[str, Any]) -> None:
    """In at least 718 of 800 surveys, all intervals contain the true shares simultaneously. At a true coverage of 95 %,
    a smaller number would occur once in a billion runs."""
    assert results["intervals"]["surveys"] == 800
    assert results["intervals"]["held"] >= 718


def test_bisection_finds_the_smallest_number() -> None:
    """Bisection finds the smallest number of people that satisfies a condition."""
    assert [local._fewest(lambda n, least=least: n >= least) for least in (1, 2, 3, 1000)] == [1, 2, 3, 1000]


def test_the_page_matches_the_results() -> None:
    """Every table on the page and the numbers in its sentences equal the results."""
    found = page.read("local")
    for table in local.tables(found):
        assert table in TEXT
    held = found["intervals"]
    assert f"Of all {held['surveys']:,} surveys the intervals held in {held['held']:,}" in PROSE
    assert f"at least {100 * math.floor(1000 * held['held_at_least']) / 1000:.1f} %" in PROSE
    assert f"Of the {found['compared']} errors" in PROSE
    assert f"the farthest lies {found['farthest']:.1f} standard errors" in PROSE
    worst = min(found["reasons"], key=lambda row: row["held"] / row["surveys"])
    assert f"{worst['held']} of {worst['surveys']}" in PROSE
    assert worst["held_of_them"] == worst["surveys"]
    error = {row["estimator"]: row["theory"] for row in found["by_people"] if row["n"] == 10_000}
    assert f"one bit errs {error['one bit'] / error['central Laplace']:.0f} times" in PROSE
    assert Path(page.EVIDENCE / "local.svg").exists()


def test_other_docs_state_the_same_number() -> None:
    """docs/leaving-reasons.md states the computed number of required answers."""
    text = (page.ROOT / "docs" / "leaving-reasons.md").read_text()
    needed = {row["odds"]: row for row in page.read("local")["needed"]}
    lines = [line for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert len(lines) == 5
    for line in lines:
        odds, epsilon, _, answers = (cell.strip() for cell in line.strip("|").split("|"))
        assert (epsilon, answers) == (f"{math.log(int(odds)):.2f}", f"{needed[int(odds)]['answers']:,}")


def test_the_estimators_are_unbiased() -> None:
    """If all people have the same value, each estimator returns that value on average."""
    generator = np.random.default_rng(0)
    for estimator in local.ESTIMATORS.values():
        found = [estimator(generator, np.full(400, 0.3), 10) for _ in range(400)]
        assert abs(np.mean(found) - 0.3) < 6 * np.std(found) / 20
