"""Margins of a chain and a budget: epsilon without a run, records per run, and the number of versions that still fit.

Symbols: epsilon >= 0, in nats; 0 < delta < 1; `records` >= 1 records that become null (>= 0 where a function says so),
followed by a run of `steps` K >= 1. The target bounds `unlearning`, compared with training from scratch, and covers all
earlier deletions of the chain. The `deletion` epsilon of each of these records is then no larger. Assumptions: those of
the accountant. Requests and runs do not depend on published models, except for `releases_left`. Reference: that of the
accountant, `docs/mathematics/shift.md`.
"""

from bisect import bisect_right
from collections.abc import Sequence

from lethe.proof import accountant, conversion, errors, methods
from lethe.proof.mechanism import Mechanism


def least_epsilon(chain: accountant.Chain, *, records: int, steps: int, delta: float) -> float:
    """Return the `unlearning` epsilon at `delta`, in nats, after `records` >= 0 more deletions and K >= 0 steps.

    Formal Guarantee: never below the exact value; decreasing in `steps`, increasing in `records`.

    Edge cases: K = 0 gives the epsilon without an unlearning run. The result is 0 if mu is covered by `delta` alone.

    >>> from lethe.proof.calibration import ModelSettings, mechanism_for
    >>> m = mechanism_for(ModelSettings(epsilon=1.0, delta=1e-5, l2=1e-3), num_slots=1000, num_classes=2)
    >>> chain = accountant.replay(m, [accountant.Run(steps=m.learn_steps)])
    >>> [round(least_epsilon(chain, records=1, steps=steps, delta=1e-5), 6) for steps in (0, 92, 93)]
    [2.091521, 1.000604, 0.991887]
    """
    errors.require_count(0, records=records, steps=steps)
    method = methods.of(chain.mechanism)
    if steps:
        chain, records = method.advance(chain, accountant.Run(steps=steps, records=records)), 0
    return conversion.gdp_epsilon(mu=method.unlearning_mu(chain, records=records), delta=delta)


def most_records(chain: accountant.Chain, *, steps: int, epsilon: float, delta: float) -> int:
    """Return the maximum number of records that can become null such that the K `steps` after that meet the target.

    Formal Guarantee: with this many records, K steps reach (epsilon, delta); with one more they do not, unless the
    result is `num_slots`. mu increases in the number of records.

    Edge cases: 0 if one record is too many. Raises `InfeasibleError` if earlier deletions alone miss the target.

    >>> from lethe.proof.calibration import ModelSettings, mechanism_for
    >>> m = mechanism_for(ModelSettings(epsilon=1.0, delta=1e-5, l2=1e-3), num_slots=1000, num_classes=2)
    >>> chain = accountant.replay(m, [accountant.Run(steps=m.learn_steps)])
    >>> [most_records(chain, steps=steps, epsilon=1.0, delta=1e-5) for steps in (1, 87, 348)]
    [0, 0, 7]
    """
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)

    def mu_after(records: int) -> float:
        return accountant.unlearning_mu(accountant.advance(chain, accountant.Run(steps=steps, records=records)))

    max_records = bisect_right(range(chain.mechanism.num_slots + 1), target, key=mu_after) - 1
    if max_records < 0:
        raise errors.InfeasibleError(f"Expected {steps} steps to bring earlier deletions to the target")
    return max_records


def releases_left(
    exposures: Sequence[accountant.Exposure],
    mechanism: Mechanism,
    *,
    records: int,
    steps: int,
    epsilon: float,
    delta: float,
) -> int:
    """Return how many more versions, each from a run of K `steps`, can be published within an `adaptive` budget.

    Symbols: `exposures` are the versions, of any model, published while the person's `records` >= 1 were present.

    Formal Guarantee: for a person who is present in that many more versions of this model and in no version of any
    other model, the `adaptive` guarantee meets (epsilon, delta) upon deletion; with one more version it does not.

    Edge cases: the result is 0 if one version is too many, and never exceeds 2^53. Raises `InfeasibleError` if the
    published versions already exceed the budget.

    >>> from lethe.proof.calibration import ModelSettings, mechanism_for
    >>> m = mechanism_for(ModelSettings(epsilon=1.0, delta=1e-5, l2=1e-3), num_slots=1000, num_classes=2)
    >>> learned = [accountant.Exposure(mechanism=m, records=1, releases=((m.learn_steps, 1),))]
    >>> [releases_left(learned, m, records=1, steps=93, epsilon=epsilon, delta=1e-5) for epsilon in (3.0, 10.0)]
    [2, 38]
    """
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)
    if methods.adaptive_mu(exposures) > target:
        raise errors.InfeasibleError(f"Expected the published versions to keep epsilon={epsilon}, delta={delta}")

    def mu_after(releases: int) -> float:
        future = accountant.Exposure(mechanism=mechanism, records=records, releases=((steps, releases),))
        return methods.adaptive_mu([*exposures, future])

    return bisect_right(range(1, errors.LARGEST_COUNT + 1), target, key=mu_after)
