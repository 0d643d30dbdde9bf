"""Canary test: many lanes are trained on their canaries and then forget them, as runs of the model's method do.

No person's row is read: all rows are null, one per batch. The noise is drawn in this process and hides no data.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from app.errors import AuditFailed
from lethe import sockets
from lethe.proof import canary_test, methods
from lethe.proof.mechanism import Mechanism
from worker.evidence import Lanes
from worker.langevin import chain, engines, init, noise


def run(
    mechanism: Mechanism, plan: canary_test.CanaryPlan, *, on_progress: Callable[[int], None]
) -> canary_test.Observed:
    """Return the statistics of the lanes after the steps of `plan`. The plan's `steps_before` steps are taken first.

    `on_progress(steps_done)` is called after every step and may raise to stop the run. Raises `AuditFailed` if the
    lanes deviate from their law after learning, which happens in a correct run with probability <= `FALSE_ALARM`.
    """
    law, start = canary_test.law(mechanism, plan), torch.zeros(plan.lanes, dtype=torch.float64)
    if plan.steps_before:
        learning = replace(plan, steps_before=0, steps=plan.steps_before)
        learns = Lanes(canary_test.law(mechanism, learning, records=law.records), learning, start=start)
        learned = _run_lanes(mechanism, learns, learning.steps, on_progress)
        if deviations := learns.observed(start, learned).deviations():
            raise AuditFailed(f"The canaries were not learned as they were to be: {', '.join(deviations)}.")
        start = learns.without_witnesses(learned)
    lanes = Lanes(law, plan, start=start)
    return lanes.observed(
        start,
        _run_lanes(
            mechanism,
            lanes,
            plan.steps,
            lambda steps_done: on_progress(plan.steps_before + steps_done),
            first_step=plan.steps_before if methods.of(mechanism).continues else 0,
        ),
    )


def _run_lanes(
    mechanism: Mechanism, lanes: Lanes, steps: int, on_progress: Callable[[int], None], *, first_step: int = 0
) -> Tensor:
    rows, alone = mechanism.num_batches, mechanism.on_null_rows()
    runners = dict(sockets.plugs("worker.features", "methods", "METHODS"))
    result = runners.get(mechanism.method, chain.run)(
        mechanism=alone,
        # The gradient of a null row is 0.
        features=np.zeros((rows, 1), np.float32),
        labels=np.zeros(rows, np.int32),
        initial=init.origin_of(alone, 1),
        first_step=first_step,
        steps=steps,
        noise=noise.SystemNoise(),
        on_progress=on_progress,
        backend=engines.Backend(threads=1),
        lanes=lanes,
    )
    ended: Tensor = result.lanes
    return ended
