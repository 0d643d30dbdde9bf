"""An audit that was asked for: many lanes learn their canaries and forget them, by the steps that runs take.

No rows of people are read: all rows are null, one for each batch. The noise is drawn in this process, and protects
nobody here.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from app.errors import AuditFailed
from lethe.proof import audit
from lethe.proof.audit import AuditPlan, Observed
from lethe.proof.mechanism import Mechanism
from worker.audit.lanes import Lanes
from worker.langevin import chain, init
from worker.langevin.noise import SystemNoise


def run(mechanism: Mechanism, plan: AuditPlan, *, on_progress: Callable[[int], None]) -> Observed:
    """Return the statistics of the lanes after the steps of `plan`, having taken those before for real too.

    `on_progress(steps_done)` is called after every step and stops the run by raising. Raises `AuditFailed` if learning
    was not what it is to be, which is wrong with probability <= `FALSE_ALARM` too.
    """
    law, start = audit.law(mechanism, plan), torch.zeros(plan.lanes, dtype=torch.float64)
    if plan.steps_before:
        learning = replace(plan, steps_before=0, steps=plan.steps_before)
        learns = Lanes(audit.law(mechanism, learning, records=law.records), learning, start=start)
        learned = _ran(mechanism, learns, learning.steps, on_progress)
        if found := learns.observed(start, learned).deviations():
            raise AuditFailed(f"The canaries were not learned as they were to be: {', '.join(found)}.")
        start = learns.without_witnesses(learned)
    lanes = Lanes(law, plan, start=start)
    return lanes.observed(
        start,
        _ran(
            mechanism,
            lanes,
            plan.steps,
            lambda steps_done: on_progress(plan.steps_before + steps_done),
            first_step=plan.steps_before,
        ),
    )


def _ran(
    mechanism: Mechanism, lanes: Lanes, steps: int, on_progress: Callable[[int], None], *, first_step: int = 0
) -> Tensor:
    rows, classes = mechanism.num_batches, min(2, mechanism.num_classes)
    ran = chain.run(
        mechanism=replace(mechanism, num_slots=rows, batch_size=1, num_classes=classes, num_parameters=1, network=None),
        features=np.zeros((rows, 1), np.float32),  # of a null row the gradient is 0
        labels=np.zeros(rows, np.int32),
        initial=init.origin(num_classes=classes, num_features=1, objective=mechanism.objective),
        first_step=first_step,
        steps=steps,
        noise=SystemNoise(),
        on_progress=on_progress,
        threads=1,
        lanes=lanes,
    )
    assert ran.lanes is not None
    return ran.lanes
