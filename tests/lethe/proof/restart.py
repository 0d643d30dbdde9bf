"""The second bound of docs/mathematics/reset.md, which the product does not use."""

import math
from collections.abc import Sequence
from dataclasses import replace

from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.mechanism import Mechanism


def restart_mu(mechanism: Mechanism, runs: Sequence[Run]) -> float:
    """Return the minimum `unlearning` mu over comparisons that restart before one of `runs`, from points 2R apart and
    without noise.

    This is a second upper bound in addition to `unlearning_mu(replay(mechanism, runs))`, and is smaller after a large
    number of early edits. The result is infinite if there are no runs."""
    explicit_runs, current = [], mechanism
    for run in runs:
        current = run.mechanism or current
        explicit_runs.append(replace(run, mechanism=current))
    restarted_chains = (
        accountant.resume(
            accountant.imported(mechanism), [replace(run, records=0, inserted=0, corrected=0), *later_runs]
        )
        for run, *later_runs in (explicit_runs[first:] for first in range(len(explicit_runs)))
    )
    return min(map(accountant.unlearning_mu, restarted_chains), default=math.inf)
