"""Attacks that unlearning was not made for, on the mechanisms they break and on ours: `./dev bench attacks`.

People who read published models choose by them whom to delete, or keep on reading after a deletion. Chourasia and Shah,
"Forget unlearning: towards true data-deletion in machine learning" (ICML 2023, arXiv 2210.08911) show what that does to
guarantees that compare with learning again: Theorem 3.1 (the median), Theorem 3.2 (a secret counter), equations 7 and
8 (a sum). Their Theorems 4.1 and 4.3 as printed have counterexamples of their own. Gupta, Jung, Neel, Roth,
Sharifi-Malvajerdi and Waites, "Adaptive machine unlearning" (NeurIPS 2021), show it for sharded retraining.

Each attack is played on the mechanism that it was made for, and by the same kind of requester on the production chain,
whose `adaptive` certificate must hold. Every game has two worlds, with the person and without; the person is deleted in
both before the attacker looks. The attacker's rule is fixed by theory, or learned on samples that are then set aside.
Intervals are those of Clopper and Pearson, all of them together right but for probability 0.05.

The seed is for people, partitions and the flawed mechanisms' randomness. Our noise comes from the operating system.
Prints tables, writes benchmarks/results/attacks.json, docs/evidence/attacks.svg and docs/evidence/attacks-releases.svg.
"""

import argparse
import os
from dataclasses import asdict, dataclass
from typing import Any, Self

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import page
from benchmarks.attacks import digits, figures, flawed, ours, ours_digits, shards
from benchmarks.attacks.life import delta_of
from benchmarks.attacks.measured import FAMILY_ERROR, Certified, advantage, allowed, renyi_divergence, summary
from lethe.features.theorems import evaluate
from lethe.proof import accountant, canary_test
from lethe.proof.canary_test import Guesses
from lethe.proof.mechanism import Adjacency

MEDIAN_STEP = 8
COUNTER_EPSILON = 1.0
COUNTER_RELEASES = (*ours.RELEASES_SEEN, 64)
ORDERS = (1.5, 2.0, 8.0, float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How often each game is played, in each of its two worlds."""

    flawed: int = 10_000
    shards: int = 250
    ours: int = 3_000
    digits: int = 600

    @classmethod
    def quick(cls) -> Self:
        return cls(flawed=1_000, shards=15, ours=40, digits=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few trials: shows that it runs, proves little")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    results = measured(Trials.quick() if asked.quick else Trials(), seed=asked.seed)
    report(results)
    page.write("attacks", results, page.SCRATCH if asked.quick else page.RESULTS)
    drawn = page.SCRATCH if asked.quick else page.EVIDENCE
    page.save(figures.attacks(results), "attacks", drawn)
    page.save(figures.releases(results), "attacks-releases", drawn)


def measured(trials: Trials, *, seed: int) -> dict[str, Any]:
    """Everything that the page says, as JSON has it."""
    torch.set_num_threads(1)
    broken = on_the_flawed(np.random.default_rng(seed), trials=trials.flawed)
    people = digits.people(seed)
    generator = np.random.default_rng([seed, 1])
    sharded = shards.attack(people, generator, track(range(trials.shards), "shards"))
    broken |= {"shards, presence": sharded.presence, "shards, against learning again": sharded.partition}

    at = ours.setting()
    found = ours.played(at, track(range(trials.ours), "our chain"))
    views, games = ours.read(at, found), ours.games(at)
    on_learning, on_deletion = ours.tests_of(at, found["choosing"])
    on_digits = ours_digits.setting(people)
    after, before = ours_digits.played(on_digits, track(range(trials.digits), "our chain, digits"))
    proved: dict[str, tuple[Certified, Guesses]] = {
        name: (at.certified(games[game]), guessed) for name, (game, guessed) in views.items()
    }
    proved |= {
        name: (on_digits.certified, one) for name, one in (("digits, one release", after), ("digits, read", before))
    }

    each = FAMILY_ERROR / (
        len(broken) + len(proved) + 3
    )  # and two tests of Theorem 4.5, and how often shards are named
    return {
        "seed": seed,
        "trials": asdict(trials),
        "machine": page.machine(),
        "family_error": FAMILY_ERROR,
        "error": each,
        "flawed": {name: summary(guessed, error=each) for name, guessed in broken.items()},
        "shards": {
            "people": digits.PEOPLE,
            "shards": shards.SHARDS,
            "rounds": digits.ROUNDS,
            "leave_per_round": digits.LEAVE_PER_ROUND,
            "named": sharded.named / trials.shards,
            "named_at_least": canary_test.at_least(sharded.named, trials.shards, error=each),
            "leave": sharded.leave,
            "mates": sharded.mates,
        },
        "counter": {
            "epsilon": COUNTER_EPSILON,
            "loss": {
                n: evaluate("t32_count_loss", {"eps": COUNTER_EPSILON, "i": 1, "N": n})["loss"]
                for n in COUNTER_RELEASES
            },
            "divided_never_above": flawed.most_of_divided_counter(COUNTER_EPSILON),
        },
        "median": {"step": MEDIAN_STEP, "at_least_by_theorem": evaluate("t31_success", {"i": MEDIAN_STEP})["prob"]},
        "ours": {
            name: certified.summary(guessed, error=each, delta=delta_of(certified.mechanism))
            for name, (certified, guessed) in proved.items()
        },
        "mechanisms": {
            "worst case": at.mechanism.to_json() | {"delta": delta_of(at.mechanism)},
            "digits": on_digits.mechanism.to_json() | {"delta": delta_of(on_digits.mechanism)},
        },
        "observed_only": observed_only(at),
        "theorem_4_5": theorem_4_5(at, on_learning, on_deletion, broken["sum"], found, error=each),
    }


def on_the_flawed(generator: np.random.Generator, *, trials: int) -> dict[str, Guesses]:
    found = {
        "median": flawed.median(generator, trials=trials, step=MEDIAN_STEP),
        "sum": flawed.total(generator, trials=trials),
    }
    for releases in COUNTER_RELEASES:
        for name, divided in (("counter", True), ("flag", False)):
            found[f"{name}, {releases}"] = flawed.counter(
                generator, epsilon=COUNTER_EPSILON, releases=releases, trials=trials, divided=divided
            )
    found["pad, one release"], found["pad, two releases"] = flawed.pad_over_two_releases(generator, trials=trials)
    found["parity, fixed requests"], found["parity, adaptive"] = flawed.pad_of_the_requester(generator, trials=trials)
    return found


def observed_only(at: ours.Setting) -> dict[str, Any]:
    """What a count of the one version that was read would certify of the last of many: the error of Theorem 4.3."""
    mu = accountant.release_mu(at.mechanism, steps=ours.SHORT_STEPS, adjacency=Adjacency.ZERO_OUT)
    return {"mu": mu, "allows": allowed(mu)}


def theorem_4_5(
    at: ours.Setting,
    on_learning: Guesses,
    on_deletion: Guesses,
    of_sum: Guesses,
    found: dict[str, Any],
    *,
    error: float,
) -> dict[str, Any]:
    """By order: the epsilon below which the measured advantages refute a certificate, and what ours states.

    Of the sum, the advantage over the whole game is below that of both tests, so that its lower limit serves.
    """
    tests = {"learning": summary(on_learning, error=error), "deletion": summary(on_deletion, error=error)}
    least = max(0.0, min(test["low"] for test in tests.values()))
    certified = at.certified(ours.games(at)["choosing"])
    least_of_sum = max(0.0, summary(of_sum, error=error)["low"])
    rows = [
        {
            "order": "inf" if np.isinf(order) else order,
            "sum_refutes_below": refuted(order, least_of_sum),
            "ours_refutes_below": refuted(order, least),
            "adaptive": _stated(order, certified.adaptive_mu),
            "deletion": _stated(order, certified.deletion_mu),
        }
        for order in ORDERS
    ]
    epsilons = [(q, renyi_divergence(mu=certified.adaptive_mu, order=q)) for q in np.geomspace(1.01, 100, 200)]
    return {
        "tests": tests,
        "advantage_of_both": least,
        "advantage_of_sum": least_of_sum,
        "product": advantage(on_learning) * advantage(on_deletion),
        "orders": rows,
        "theorem_4_1_allows": min(evaluate("t41_adv_plus", {"q": float(q), "eps": eps})["adv"] for q, eps in epsilons),
    }


def refuted(order: float, least: float) -> float:
    below: float = evaluate("t45_threshold", {"q": "inf" if np.isinf(order) else order, "adv": least})["eps_min"]
    return below


def _stated(order: float, mu: float) -> float | str:
    return "inf" if np.isinf(order) else renyi_divergence(mu=mu, order=order)


def report(results: dict[str, Any]) -> None:
    console = Console(width=120)
    table = Table(
        "flawed mechanism, attacker sees", "advantage", "at least", "at most", title="on what they were made for"
    )
    for name, found in results["flawed"].items():
        table.add_row(name, *(f"{found[key]:.3f}" for key in ("advantage", "low", "high")))
    console.print(table)
    named = ("advantage", "low", "high", "adaptive_allows", "deletion_allows", "mu_at_least", "adaptive_mu")
    table = Table("attacker sees", *(name.replace("_", " ") for name in named), "holds", title="on ours")
    for name, found in results["ours"].items():
        table.add_row(name, *(f"{found[key]:.3f}" for key in named), "yes" if found["adaptive_holds"] else "NO")
    console.print(table)
    necessity = results["theorem_4_5"]
    table = Table("order", *list(necessity["orders"][0])[1:], title="Theorem 4.5")
    for row in necessity["orders"]:
        table.add_row(*(one if isinstance(one, str) else f"{one:.4g}" for one in row.values()))
    console.print(table)


if __name__ == "__main__":
    main()
