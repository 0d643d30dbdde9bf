"""What the order of reads does to `release`: random orders, and the fewest records that a run can read.

    ./dev bench orders        # seconds; the tables of secret-order.md and fewest-reads.md in docs/mathematics

Mechanisms are those that the service chooses at epsilon 1, and one with smaller batches. Every number is of one record,
`replace`, in a run that starts from a published version.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import page
from lethe.proof import accountant, calibration, conversion
from lethe.proof.mechanism import Adjacency, Mechanism

SIZES = (1_000_000, 10_000_000)
STEPS = (1, 16, 64, 256)
SMALL = (512, 64)
"""Batch and cool-down of the mechanism with small batches, at a million rows."""
READS = ((10_000, 1_000), (100_000, 157), (1_000_000, 64), (1_000_000, 256), (10_000_000, 256))
"""Rows and steps of the second table."""

_HALVINGS = 40

Array = NDArray[np.float64]


def main() -> None:
    results = {"random": random_orders(), "fewest": fewest_reads()}
    page.write("orders", results, page.RESULTS)
    print(*printed(results).values(), sep="\n\n")


# --- places of a record in a run ------------------------------------------------------------------------------------


def mu_by_place(
    *, step_sizes: Array, batches: Array, strong_convexity: float, noise_scale: float, moved: float
) -> Array:
    """Return the mu of a record that step t alone reads, for each t: its influence over the noise from step t on.

    Replacing the record moves the noiseless step t by `moved` eta_t/b_t. Step sizes are such that the contraction is
    1 - eta_t m.
    """
    later = remaining(step_sizes, strong_convexity)
    noise = np.cumsum((2 * step_sizes * noise_scale**2 * later**2)[::-1])[::-1]
    found: Array = moved * step_sizes / batches * later / np.sqrt(noise)
    return found


def remaining(step_sizes: Array, strong_convexity: float) -> Array:
    """Return for each step the contraction of all steps after it."""
    contractions = 1 - step_sizes * strong_convexity
    found: Array = np.append(np.cumprod(contractions[:0:-1])[::-1], 1.0)
    return found


def step_sizes_of(mechanism: Mechanism, steps: int) -> Array:
    """Return the step sizes of a run: constant, then falling evenly over the cool-down."""
    left = np.arange(steps, 0, -1)
    return mechanism.step_size * np.minimum(1.0, left / mechanism.cool_down)


def places(mechanism: Mechanism, steps: int) -> Array:
    """Return the mu of each place of a run of at most one pass, as if all batches were as small as the smallest."""
    return mu_by_place(
        step_sizes=step_sizes_of(mechanism, steps),
        batches=np.full(steps, mechanism.num_slots // mechanism.num_batches),
        strong_convexity=mechanism.strong_convexity,
        noise_scale=mechanism.noise_scale,
        moved=2 * mechanism.gradient_bound,
    )


# --- random orders --------------------------------------------------------------------------------------------------


def mean_delta(mus: Array, shares: Array, epsilon: float) -> float:
    """Return the delta of a record that is read in step t with probability shares[t], each step at its own mu."""
    deltas = (conversion.gdp_delta(epsilon=epsilon, mu=float(mu)) for mu in mus)
    return math.fsum(share * delta for share, delta in zip(shares, deltas, strict=True))


def epsilon_of_random_batches(mus: Array, shares: Array, delta: float) -> float:
    """Return the epsilon of Theorem 1: fixed batches in a fresh random order."""
    return _least(lambda epsilon: mean_delta(mus, shares, epsilon), delta)


def epsilon_of_random_slots(mus: Array, shares: Array, delta: float) -> float:
    """Return the epsilon of Theorem 2: fresh random slots in every step, kept secret."""
    read = math.fsum(shares)
    return math.log1p(read * math.expm1(_least(lambda epsilon: mean_delta(mus, shares, epsilon), delta)))


def _least(delta_at: Callable[[float], float], delta: float) -> float:
    """Return the epsilon at which a decreasing `delta_at` reaches `delta`, from above."""
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > delta:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


def random_orders() -> list[dict[str, Any]]:
    """Return the first table: one row for each mechanism and number of steps."""
    chosen = [(f"{size:,} rows", mechanism_of(size)) for size in SIZES]
    batch, cool_down = SMALL
    chosen.append((f"{SIZES[0]:,} rows, batches of {batch}", mechanism_of(SIZES[0], batch, cool_down)))
    return [_orders(name, mechanism, steps) for name, mechanism in chosen for steps in STEPS]


def mechanism_of(rows: int, batch: int | None = None, cool_down: int | None = None) -> Mechanism:
    """Return the mechanism that the service chooses for two classes, or one with other batches."""
    settings = calibration.ModelSettings(epsilon=1.0, delta=rows**-1.1, batch_size=batch, cool_down=cool_down)
    return calibration.mechanism_for(settings, num_slots=rows, num_classes=2)


def _orders(name: str, mechanism: Mechanism, steps: int) -> dict[str, Any]:
    delta, mus = mechanism.num_slots**-1.1, places(mechanism, steps)
    shares = np.full(steps, 1 / mechanism.num_batches)
    worst = accountant.release_mu(mechanism, steps=steps, adjacency=Adjacency.REPLACE)
    return {
        "mechanism": name,
        "steps": steps,
        "read": steps / mechanism.num_batches,
        "accountant": conversion.gdp_epsilon(mu=worst, delta=delta),
        "in_turn": conversion.gdp_epsilon(mu=float(mus.max()), delta=delta),
        "random_batches": epsilon_of_random_batches(mus, shares, delta),
        "random_slots": epsilon_of_random_slots(mus, shares, delta),
    }


# --- fewest reads ---------------------------------------------------------------------------------------------------


def fewest(
    *, step_sizes: Array, strong_convexity: float, noise_scale: float, gradient_bound: float, mu: float
) -> float:
    """Return the number of different records below which no run with these step sizes has a `release` of `mu`."""
    later = remaining(step_sizes, strong_convexity)
    noise = float(np.sum(2 * step_sizes * noise_scale**2 * later**2))
    forgotten = float(np.sum(step_sizes * later)) * strong_convexity
    return 2 * gradient_bound * forgotten / (strong_convexity * mu * math.sqrt(noise))


def fewest_reads() -> list[dict[str, Any]]:
    """Return the second table."""
    found = []
    for rows, steps in READS:
        made = mechanism_of(rows)
        mu, sizes = accountant.release_mu(made, steps=steps, adjacency=Adjacency.REPLACE), step_sizes_of(made, steps)
        least = fewest(
            step_sizes=sizes,
            strong_convexity=made.strong_convexity,
            noise_scale=made.noise_scale,
            gradient_bound=made.gradient_bound,
            mu=mu,
        )
        kept = float(np.prod(1 - sizes * made.strong_convexity))
        different = min(rows, steps * rows // made.num_batches)
        found.append({"rows": rows, "steps": steps, "kept": kept, "mu": mu, "read": different, "fewest": least})
    return found


def printed(results: dict[str, Any]) -> dict[str, str]:
    """Return the tables by the name of their page."""
    heads = (
        "mechanism",
        "steps",
        "rows read",
        "accountant",
        "in turn, worst place",
        "batches in random order",
        "secret random slots",
    )
    names = ("accountant", "in_turn", "random_batches", "random_slots")
    orders = [
        (row["mechanism"], row["steps"], f"{100 * row['read']:.3g} %", *(_up(row[name]) for name in names))
        for row in results["random"]
    ]
    reads = [
        (row["rows"], row["steps"], f"{row['kept']:.3f}", _up(row["mu"]), row["read"], math.floor(row["fewest"]))
        for row in results["fewest"]
    ]
    columns = ("rows", "steps", "kept", "release mu", "records read", "at least")
    return {"secret-order": page.table(heads, orders), "fewest-reads": page.table(columns, reads)}


def _up(value: float, digits: int = 4) -> str:
    """Round up, so that no printed guarantee is better than the computed one."""
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


if __name__ == "__main__":
    main()
