"""What local privacy costs: means and reasons for leaving, measured against theory, and the central model beside them.

- The mean of values in [0, 1], of people drawn of a Beta(2, 5) population: Laplace noise by whoever holds all values
  (central), Laplace noise or Gaussian noise by everybody on their own value, and one bit from everybody (Duchi, Jordan,
  Wainwright 2018); theory: `central_mean_mse`, `local_mean_mse` of the calculator, `lethe.features.leaving.local`.
- The mean of values without bounds, of a Pareto population with E x^2 = 5: clipped at `local_unbounded_tau`, against
  `local_unbounded_mse`, which is a bound and no equality.
- Reasons for leaving, by the product's own path: `lethe.randomised.randomise` on the device, the estimates and
  intervals of `RandomisedResponse`; and what Laplace noise on counts would give in the central model.

The seed draws people, and the noise of the estimators that are no part of the product. What devices draw has no seed,
so what is measured of reasons varies a little from run to run. Prints the tables of docs/evidence/local.md, writes
benchmarks/results/local.json and docs/evidence/local.svg; with --quick less, elsewhere (build/evidence).
"""

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from rich.progress import Progress

from benchmarks import page
from lethe.features.leaving.local import RandomisedResponse
from lethe.features.leaving.randomised import REASONS, randomise
from lethe.features.theorems import evaluate
from lethe.proof import conversion
from lethe.proof.canary_test import at_least
from lethe.proof.errors import require_count, require_nonnegative

Values = npt.NDArray[np.float64]
Estimator = Callable[[np.random.Generator, Values, int], float]
Report = Callable[[str], None]

SHAPE = (2.0, 5.0)
MEAN = 2 / 7
VARIANCE = 10 / (49 * 8)
PARETO = 2.5
PARETO_MEAN, PARETO_MOMENT = PARETO / (PARETO - 1), PARETO / (PARETO - 2)
DELTA = 1e-6
ODDS = (2, 3, 5, 10, 30, 100)
SHARES = dict(zip(REASONS, (0.30, 0.20, 0.35, 0.05, 0.10), strict=True))
CONFIDENCE = 0.95
WANTED = 0.05
"""Half the width of an interval, in the table of how many answers are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """`repeats` of each mean; `surveys` for each number of people who give a reason."""

    people: tuple[int, ...]
    repeats: int
    fixed: int
    surveys: dict[int, int]
    asked_with: tuple[int, ...]


FULL = Size(
    people=(100, 1000, 10_000, 100_000),
    repeats=1000,
    fixed=10_000,
    surveys={100: 1000, 1000: 1000, 10_000: 200, 100_000: 40},
    asked_with=(2, 3, 10),
)
QUICK = Size(people=(100, 1000), repeats=200, fixed=1000, surveys={100: 100, 1000: 40}, asked_with=(3,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer people and repetitions; the page stays as it is")
    parser.add_argument("--seed", type=int, default=0, help="of people, never of what devices draw")
    arguments = parser.parse_args()
    machine = page.machine()
    started = time.perf_counter()
    with Progress() as progress:
        task = progress.add_task("means", total=None)
        results = run(
            QUICK if arguments.quick else FULL,
            seed=arguments.seed,
            report=lambda what: progress.update(task, description=what),
        )
    results |= {"machine": machine, "seconds": time.perf_counter() - started, "seed": arguments.seed}
    for written in tables(results):
        print(written, end="\n\n")
    page.write("local", results, page.SCRATCH if arguments.quick else page.RESULTS)
    draw(results, page.SCRATCH if arguments.quick else page.EVIDENCE)


def run(size: Size, *, seed: int, report: Report = lambda _: None) -> dict[str, Any]:
    """Every number of the page."""
    found = measured(size, seed=seed, report=report)
    held, surveys = (sum(row[name] for row in found["reasons"]) for name in ("held", "surveys"))
    compared = [*found["by_people"], *found["by_odds"], *found["reasons"]]
    return found | {
        "intervals": {"held": held, "surveys": surveys, "held_at_least": at_least(held, surveys, error=0.05)},
        "compared": len(compared),
        "farthest": max(abs(row["measured"] - row["theory"]) / row["spread"] for row in compared),
    }


def measured(size: Size, *, seed: int, report: Report) -> dict[str, Any]:
    return {
        "settings": {
            "population": {"beta": SHAPE, "pareto": PARETO, "shares": SHARES},
            "delta": DELTA,
            "confidence": CONFIDENCE,
            "repeats": size.repeats,
        },
        "by_people": [
            row
            for n in size.people
            for row in means(np.random.default_rng([seed, n]), n=n, odds=3, repeats=size.repeats, report=report)
        ],
        "by_odds": [
            row
            for odds in ODDS
            for row in means(
                np.random.default_rng([seed, 7, odds]), n=size.fixed, odds=odds, repeats=size.repeats, report=report
            )
        ],
        "unbounded": [
            unbounded(np.random.default_rng([seed, 9, n]), n=n, odds=3, repeats=size.repeats, report=report)
            for n in size.people
        ],
        "reasons": [
            reasons(np.random.default_rng([seed, 11, n, odds]), n=n, odds=odds, surveys=times, report=report)
            for odds in size.asked_with
            for n, times in size.surveys.items()
        ],
        "needed": [needed(odds) for odds in ODDS],
        "people_for_a_mean": [people_for_a_mean(odds) for odds in ODDS],
    }


# --- means -----------------------------------------------------------------------------------------------------------


def central(generator: np.random.Generator, values: Values, odds: int) -> float:
    return float(values.mean() + generator.laplace(scale=1 / (len(values) * math.log(odds))))


def laplace(generator: np.random.Generator, values: Values, odds: int) -> float:
    return float((values + generator.laplace(scale=1 / math.log(odds), size=len(values))).mean())


def gaussian(generator: np.random.Generator, values: Values, odds: int) -> float:
    mu = conversion.gdp_mu(epsilon=math.log(odds), delta=DELTA)
    return float((values + generator.normal(scale=1 / mu, size=len(values))).mean())


def one_bit(generator: np.random.Generator, values: Values, odds: int) -> float:
    """Everybody rounds to a bit, and sends that bit or the other one."""
    response = RandomisedResponse(odds=odds, num_answers=2)
    bits = generator.random(len(values)) < values
    sent = bits ^ (generator.integers(odds + 1, size=len(values)) >= odds)
    ones = int(sent.sum())
    return response.estimates([ones, len(values) - ones], confidence=CONFIDENCE)[0].share


ESTIMATORS: dict[str, Estimator] = {
    "central Laplace": central,
    "one bit": one_bit,
    "local Laplace": laplace,
    "local Gaussian": gaussian,
}


def theory(name: str, *, n: int, odds: int) -> float:
    """The mean squared error that each must have."""
    asked = {"n": n, "eps": math.log(odds), "var": VARIANCE}
    match name:
        case "central Laplace":
            found: float = evaluate("central_mean_mse", asked)["mse"]
        case "local Laplace":
            found = evaluate("local_mean_mse", asked)["mse"]
        case "one bit":
            found = one_bit_error(n=n, odds=odds, mean=MEAN)
        case _:
            found = gaussian_error(n=n, epsilon=math.log(odds), delta=DELTA, variance=VARIANCE)
    return found


def means(
    generator: np.random.Generator, *, n: int, odds: int, repeats: int, report: Report
) -> Iterator[dict[str, Any]]:
    """The mean squared error of each estimator over newly drawn people, with the standard error of that mean."""
    squares: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    report(f"a mean of {n:,} people, odds {odds}")
    for _ in range(repeats):
        values = generator.beta(*SHAPE, size=n)
        for name, estimator in ESTIMATORS.items():
            squares[name].append((estimator(generator, values, odds) - MEAN) ** 2)
    for name, found in squares.items():
        yield {
            "estimator": name,
            "n": n,
            "odds": odds,
            "epsilon": math.log(odds),
            "measured": float(np.mean(found)),
            "spread": float(np.std(found) / math.sqrt(repeats)),
            "theory": theory(name, n=n, odds=odds),
        }


def unbounded(generator: np.random.Generator, *, n: int, odds: int, repeats: int, report: Report) -> dict[str, Any]:
    """Clipped where the bound is least, then Laplace noise by everybody."""
    report(f"an unbounded mean of {n:,} people")
    asked = {"n": n, "eps": math.log(odds), "s2": PARETO_MOMENT}
    tau = evaluate("local_unbounded_tau", asked)["tau"]
    squares = []
    for _ in range(repeats):
        values = np.clip(generator.pareto(PARETO, size=n) + 1, -tau, tau)
        noise = generator.laplace(scale=2 * tau / math.log(odds), size=n)
        squares.append((float((values + noise).mean()) - PARETO_MEAN) ** 2)
    return {
        "n": n,
        "tau": tau,
        "measured": float(np.mean(squares)),
        "spread": float(np.std(squares) / math.sqrt(repeats)),
        "bound": evaluate("local_unbounded_mse", asked | {"tau": tau})["mse"],
    }


def people_for_a_mean(odds: int, *, error: float = 0.01) -> dict[str, Any]:
    """The fewest people whose mean is known to a standard error of `error`, by theory."""
    return {"odds": odds, "epsilon": math.log(odds)} | {
        name: _fewest(lambda n, name=name: theory(name, n=n, odds=odds) <= error**2) for name in ESTIMATORS
    }


# --- reasons for leaving ---------------------------------------------------------------------------------------------


def reasons(generator: np.random.Generator, *, n: int, odds: int, surveys: int, report: Report) -> dict[str, Any]:
    """Surveys of newly drawn people who answer with the product's client: error per reason, and whether all intervals
    hold, about the population and about those who answered."""
    response = RandomisedResponse(odds=odds, num_answers=len(REASONS))
    truth = np.array(list(SHARES.values()))
    squares, held, held_of_them = [], 0, 0
    report(f"surveys of {n:,} people, odds {odds}")
    for _ in range(surveys):
        people = generator.multinomial(n, truth)
        sent = Counter(
            randomise(reason, odds=odds).answer
            for reason, times in zip(REASONS, people, strict=True)
            for _ in range(times)
        )
        found = response.estimates([sent[reason] for reason in REASONS], confidence=CONFIDENCE)
        squares.append(float(np.mean([(one.share - share) ** 2 for one, share in zip(found, truth, strict=True)])))
        held += all(one.low <= share <= one.high for one, share in zip(found, truth, strict=True))
        held_of_them += all(one.low <= some / n <= one.high for one, some in zip(found, people, strict=True))
    central_error = float(np.mean(truth * (1 - truth))) / n + 8 / (n * math.log(odds)) ** 2
    return {
        "n": n,
        "odds": odds,
        "epsilon": math.log(odds),
        "surveys": surveys,
        "measured": float(np.mean(squares)),
        "spread": float(np.std(squares) / math.sqrt(surveys)),
        "theory": float(np.mean([response.variance(n=n, share=float(share)) for share in truth])),
        "central": central_error,
        "held": held,
        "held_of_them": held_of_them,
    }


def needed(odds: int) -> dict[str, Any]:
    """The fewest answers (in hundreds) with which every interval is within WANTED of its middle, if all reasons are as
    frequent as each other."""
    response = RandomisedResponse(odds=odds, num_answers=len(REASONS))

    def is_enough(hundreds: int) -> bool:
        sent = [100 * hundreds // len(REASONS)] * len(REASONS)
        one = response.estimates(sent, confidence=CONFIDENCE)[0]
        return one.high - one.low <= 2 * WANTED

    return {"odds": odds, "epsilon": math.log(odds), "answers": 100 * _fewest(is_enough)}


def _fewest(is_enough: Callable[[int], bool]) -> int:
    """The least number from which on it is enough, by halving."""
    low, high = 0, 1
    while not is_enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


# --- what comes out --------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any]) -> list[str]:
    """As the page has them."""
    by_people = page.table(
        ["people", *(f"{name}: measured / theory" for name in ESTIMATORS)],
        [[n, *_pairs(rows)] for n, rows in _grouped(results["by_people"], "n")],
    )
    by_odds = page.table(
        ["odds", "epsilon", *(f"{name}: measured / theory" for name in ESTIMATORS)],
        [[odds, f"{rows[0]['epsilon']:.2f}", *_pairs(rows)] for odds, rows in _grouped(results["by_odds"], "odds")],
    )
    without_bounds = page.table(
        ["people", "clipped at", "measured", "bound"],
        [
            [row["n"], f"{row['tau']:.2f}", _short(row["measured"]), _short(row["bound"])]
            for row in results["unbounded"]
        ],
    )
    told = page.table(
        ["odds", "people", "measured / theory", "central", "all intervals held"],
        [
            [
                row["odds"],
                row["n"],
                f"{_short(row['measured'])} / {_short(row['theory'])}",
                _short(row["central"]),
                f"{row['held']:,} of {row['surveys']:,}",
            ]
            for row in results["reasons"]
        ],
    )
    people = page.table(
        ["odds", "epsilon", *ESTIMATORS, "answers for reasons within 5 points"],
        [
            [one["odds"], f"{one['epsilon']:.2f}", *(one[name] for name in ESTIMATORS), other["answers"]]
            for one, other in zip(results["people_for_a_mean"], results["needed"], strict=True)
        ],
    )
    return [by_people, by_odds, without_bounds, told, people]


def _grouped(rows: list[dict[str, Any]], by: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for value in dict.fromkeys(row[by] for row in rows):
        yield value, [row for row in rows if row[by] == value]


def _pairs(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{_short(row['measured'])} / {_short(row['theory'])}" for row in rows]


def _short(value: float) -> str:
    return f"{value:.2e}"


def draw(results: dict[str, Any], folder: Any) -> None:
    drawn = page.figure(7.4, 6.4)
    [[people, odds], [without_bounds, told]] = drawn.subplots(2, 2)
    for axes, rows, over in ((people, results["by_people"], "n"), (odds, results["by_odds"], "epsilon")):
        for name, mark in zip(ESTIMATORS, "osD^", strict=True):
            of_one = [row for row in rows if row["estimator"] == name]
            _line(axes, [row[over] for row in of_one], of_one, label=name, mark=mark)
    _line(without_bounds, [row["n"] for row in results["unbounded"]], results["unbounded"], label="clipped", mark="o")
    for asked, rows in _grouped(results["reasons"], "odds"):
        _line(told, [row["n"] for row in rows], rows, label=f"local, odds {asked}", mark="o")
    central_rows = [row for row in results["reasons"] if row["odds"] == 3]
    told.loglog([row["n"] for row in central_rows], [row["central"] for row in central_rows], ":", color="black",
                label="central, odds 3 (theory)")  # fmt: skip
    people.set(xlabel="people (odds 3)", ylabel="mean squared error of a mean in [0, 1]")
    odds.set(xlabel=f"epsilon ({results['by_odds'][0]['n']:,} people)", ylabel="mean squared error of a mean in [0, 1]")
    odds.set_xticks(
        epsilons := sorted({row["epsilon"] for row in results["by_odds"]}), [f"{one:.2g}" for one in epsilons]
    )
    odds.minorticks_off()
    without_bounds.set(xlabel="people (odds 3)", ylabel="mean squared error, unbounded values")
    told.set(xlabel="people", ylabel="mean squared error per reason")
    for axes in (people, odds, without_bounds, told):
        axes.legend(frameon=False)
    page.save(drawn, "local", folder)


def _line(axes: Axes, places: list[float], rows: list[dict[str, Any]], *, label: str, mark: str) -> None:
    """Theory as a line, what was measured as marks."""
    is_bound = "bound" in rows[0]
    [line] = axes.loglog(places, [row["bound" if is_bound else "theory"] for row in rows], "--" if is_bound else "-",
                         lw=1, label="bound" if is_bound else None)  # fmt: skip
    axes.loglog(places, [row["measured"] for row in rows], mark, color=line.get_color(), ms=4, label=label)


def one_bit_error(*, n: int, odds: int, mean: float) -> float:
    """Return the mean squared error of a mean in [0, 1] from one log(odds)-locally private bit per person.

    Each person rounds the value at random to 0 or 1, with the value as the probability of 1, and sends the bit by
    `RandomisedResponse`. This is the estimator of Duchi, Jordan and Wainwright ("Minimax optimal procedures for locally
    private estimation", JASA 113, 2018) for one dimension, private whatever the rounding. The error, at most
    ((odds + 1)/(odds - 1))^2/(4 n), depends on the values by their mean alone.

    >>> one_bit_error(n=1000, odds=3, mean=0.5)
    0.001
    """
    return RandomisedResponse(odds=odds, num_answers=2).variance(n=n, share=mean)


def gaussian_error(*, n: int, epsilon: float, delta: float, variance: float) -> float:
    """Return the mean squared error of a mean of values in [0, 1] with this variance, each with Gaussian noise.

    The noise is the minimum that makes each value (epsilon, delta)-locally private. The error is
    variance/n + 1/(n mu^2), where mu-GDP gives exactly (epsilon, delta) (Balle and Wang, ICML 2018).
    """
    require_count(1, n=n)
    require_nonnegative(variance=variance)
    return (variance + conversion.gdp_mu(epsilon=epsilon, delta=delta) ** -2) / n


if __name__ == "__main__":
    main()
