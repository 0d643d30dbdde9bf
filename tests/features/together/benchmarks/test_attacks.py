"""Claims of docs/evidence/attacks.md, compared with its JSON and with real runs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import page
from benchmarks.attacks import __main__ as attacks, figures, flawed, ours, tables
from benchmarks.attacks.life import Life
from benchmarks.attacks.measured import advantage
from lethe.proof import accountant
from lethe.proof.mechanism import Adjacency

PAGE = Path("docs/evidence/attacks.md")
TRIALS = attacks.Trials(flawed=1_000, shards=15, ours=30, digits=2)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return attacks.measured(TRIALS, seed=1)


def test_the_median_reveals_the_record_as_stated() -> None:
    """The attacker of the paper's Theorem 3.1 identifies the deleted record at least as often as the theorem states,
    and never identifies a wrong one."""
    found = flawed.median(np.random.default_rng(2), trials=500, step=4)
    assert found.true_positives / found.members >= 1 / 2
    assert found.false_positives == 0


def test_the_sum_reveals_the_record() -> None:
    """The attacker of equations 7 and 8 of the paper identifies the deleted record in every game."""
    assert advantage(flawed.total(np.random.default_rng(2), trials=100)) == 1.0


def test_pads_fail_against_two_releases_or_adaptive_requests() -> None:
    """In both counterexamples, an attacker who sees one release, or whose requests are fixed, can only guess. An
    attacker who sees two releases, or who chooses requests adaptively, is always right."""
    for game in (flawed.pad_over_two_releases, flawed.pad_of_the_requester):
        blind, seeing = game(np.random.default_rng(2), trials=2_000)
        # The tolerance is five standard deviations.
        assert abs(advantage(blind)) < 0.08
        assert advantage(seeing) == 1.0


def test_a_divided_counter_reveals_less_than_a_flag() -> None:
    """After many releases, the advantage against the divided counter is still below its bound, while the advantage
    against an undivided flag is 1."""
    generator = np.random.default_rng(2)
    counter, flag = (
        flawed.counter(generator, epsilon=1.0, releases=64, trials=2_000, divided=divided) for divided in (True, False)
    )
    assert 0.35 < advantage(counter) < flawed.most_of_divided_counter(1.0) + 0.08
    assert flawed.most_of_divided_counter(1.0) < 0.6
    assert advantage(flag) > 0.99


@pytest.mark.parametrize("name", ["copying", "choosing", "waiting", "copying late", "last of many"])
def test_games_run_what_is_certified(name: str) -> None:
    """Every game takes the steps that the accountant counts, publishes after each run, and deletes the person before
    the stated run."""
    at = ours.setting()
    game = ours.games(at)[name]
    life = Life.learned(at.mechanism, *ours.people(present=True))
    here: list[bool] = []
    publish = life.publish

    def watched(steps: int) -> Any:
        here.append(bool(life.features[ours.TARGET].any()))
        return publish(steps)

    life.publish = watched  # type: ignore[method-assign]
    versions = game.play(life, at)
    certified = at.certified(game)
    assert life.runs == tuple(run.steps for run in certified.runs)
    assert len(versions) == len(certified.runs)
    assert [True, *here] == [number < certified.deleted_before for number in range(len(versions))]


def test_adaptive_counts_every_version_with_the_person() -> None:
    """In the game with the copying requester, the adaptive certificate composes the first version and the three short
    runs after it."""
    at = ours.setting()
    first, later = (
        accountant.release_mu(at.mechanism, steps=steps, adjacency=Adjacency.ZERO_OUT)
        for steps in (at.mechanism.learn_steps, ours.STEPS)
    )
    certified = at.certified(ours.games(at)["copying"])
    assert certified.adaptive_mu == pytest.approx(math.hypot(first, *[later] * 3))


@pytest.mark.soak
def test_shard_models_reveal_the_person(results: dict[str, Any]) -> None:
    """The shards' models reveal which shard contains the person, and the deletion leaves a measurable trace."""
    assert results["shards"]["named"] > 0.9
    assert results["flawed"]["shards, presence"]["low"] > 0
    assert results["flawed"]["shards, against learning again"]["low"] > 0


@pytest.mark.soak
def test_lethe_keeps_its_certificate(results: dict[str, Any]) -> None:
    """No attack on Lethe's models proves more than the `adaptive` certificate permits, at a family-wise error rate of 5
    %."""
    assert all(found["adaptive_holds"] for found in results["ours"].values())
    assert all(row["ours_refutes_below"] < _number(row["adaptive"]) for row in results["theorem_4_5"]["orders"])


@pytest.mark.soak
def test_figures_are_drawn(results: dict[str, Any], tmp_path: Path) -> None:
    """Both figures are drawn, and the same numbers give byte-identical files."""
    for name, draw in (("attacks", figures.attacks), ("releases", figures.releases)):
        for folder in ("one", "two"):
            page.save(draw(results), name, tmp_path / folder)
        assert (tmp_path / "one" / f"{name}.svg").read_bytes() == (tmp_path / "two" / f"{name}.svg").read_bytes()


@pytest.mark.parametrize("table", tables.ALL, ids=lambda table: str(table.__name__))
def test_page_tables_match_the_full_run(table: Any) -> None:
    """Every table on the page is generated from the JSON output of the full run."""
    assert table(page.read("attacks")) in PAGE.read_text()


def test_the_full_run_matches_the_claims_of_the_page() -> None:
    """In the full run, flawed mechanisms reveal the person, and no attack exceeds Lethe's `adaptive` certificate.
    Readers who choose their own requests exceed `deletion` in exactly the games that the page names. In the other games
    that it names, the measured advantage also exceeds `deletion`, but this is not statistically proved."""
    results = page.read("attacks")
    for name in ("median", "sum", "pad, two releases", "parity, adaptive", "shards, presence"):
        assert results["flawed"][name]["low"] > 0.9
    assert all(found["adaptive_holds"] for found in results["ours"].values())
    for name in ("sum, one release", "parity, one release"):
        assert not results["ours"][name]["deletion_holds"]
    for name in ("median, one release", "pad, all releases", "digits, one release"):
        assert results["ours"][name]["deletion_holds"]
        assert (
            results["ours"][name]["advantage"] > results["ours"][name]["deletion_allows"] > results["ours"][name]["low"]
        )
    assert all(results["ours"][f"counter, {releases}"]["deletion_holds"] for releases in ours.RELEASES_SEEN)
    parity = results["ours"]["parity, one release"]
    assert parity["advantage"] > results["observed_only"]["allows"] > parity["low"]


def _number(value: float | str) -> float:
    return math.inf if value == "inf" else float(value)
