"""Steps of runs that forget one batch after the other, as the accountant plans them."""

from collections.abc import Iterable

from lethe.proof import accountant, calibration
from lethe.proof.accountant import Chain, Run


def schedule(chain: Chain, *, batches: Iterable[int], epsilon: float, delta: float, at_most: int) -> list[int]:
    """Return the number of steps of each run if `batches` of records are forgotten one after the other.

    The schedule is greedy: each run takes the `least_steps` that its chain needs, including the remaining influence of
    earlier batches. [1] * R handles R requests one by one, [b] * (R // b) in batches of b, and [R] at once; the sums of
    the results compare their costs.

    Formal Guarantee: every published version meets (epsilon, delta).

    Edge cases: raises `InfeasibleError` if a batch needs more than `at_most` steps.
    """
    steps_per_batch = []
    for records in batches:
        steps = calibration.least_steps(chain, records=records, epsilon=epsilon, delta=delta, at_most=at_most)
        chain = accountant.advance(chain, Run(steps=steps, records=records))
        steps_per_batch.append(steps)
    return steps_per_batch
