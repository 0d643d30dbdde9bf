"""The runs whose audits are measured."""

from dataclasses import replace
from typing import Any

from app.unlearning import planner
from lethe.proof import accountant, calibration
from lethe.proof.canary_test import CanaryPlan
from lethe.proof.losses import num_weight_rows
from lethe.proof.mechanism import Mechanism

LANES = (64, 256, 1024, 4096)
DEFAULT = 256
SHAPES = {"small": (1_000, 21, 2), "Adult": (32_561, 105, 2), "MNIST, 3 or 8": (11_982, 785, 2)}
"""Rows, columns and classes; the rows are random ones of norm 1."""
BATCHES = {"small": {"batch_size": 50, "cool_down": 16}, "Adult": {"batch_size": 163, "cool_down": 398}}
"""Of mechanisms whose steps read one batch each; that of Adult is the service's default."""
IN_BATCHES = " in batches"
Row = dict[str, Any]


def planned(rows: int, columns: int, classes: int, **batches: int) -> tuple[Mechanism, dict[str, CanaryPlan]]:
    """The service's mechanism, with l2 = max(1/n, 2.5e-4), its learning run, and the run that forgets the first record;
    of `batches`, or where every step reads all rows."""
    delta, parameters, l2 = rows**-1.1, num_weight_rows(classes) * columns, max(1 / rows, 2.5e-4)
    read = batches or {"batch_size": rows, "cool_down": 1}
    settings = calibration.ModelSettings(epsilon=1.0, delta=delta, l2=l2, **read)
    mechanism = calibration.mechanism_for(settings, num_slots=rows, num_classes=classes, num_parameters=parameters)
    learned = accountant.replay(mechanism, [accountant.Run(steps=mechanism.learn_steps)])
    steps = planner.forget(learned, records=1, epsilon=1.0, delta=delta).steps
    learning = CanaryPlan(lanes=DEFAULT, steps_before=0, steps=mechanism.learn_steps)
    kind = IN_BATCHES if batches else ""
    return mechanism, {
        f"forgetting{kind}": replace(learning, steps_before=mechanism.learn_steps, steps=steps),
        f"learning{kind}": learning,
    }
