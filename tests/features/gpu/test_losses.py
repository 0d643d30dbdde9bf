"""Steps on a device, for every loss."""

from typing import Any

import numpy as np
import pytest

from tests.features.gpu.test_device import Replayed
from tests.worker.langevin.test_losses import classes_of, every_loss, labelled, parameters_of
from worker.features.gpu.engines import DeviceRows
from worker.langevin.engines import choose
from worker.langevin.gradient import HostRows
from worker.langevin.losses import Loss
from worker.langevin.schedule import Schedule
from worker.langevin.step import State, projected_noisy_step


@pytest.mark.parametrize("device", [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)])
@every_loss
def test_device_steps_equal_the_chain(loss: Loss, device: str) -> None:
    """With the same noise, 60 steps over batches on a device agree with the CPU to 1e-6, the precision of float32
    products."""
    features, labels = labelled(loss, 700, 9)
    ran = {"loss": loss, "num_classes": classes_of(loss)}
    settings: dict[str, Any] = {"l2": 0.05, "step_size": 0.5, "noise_scale": 0.2, "radius": 20.0}
    start, schedule = State(parameters=parameters_of(loss, 9), steps_done=0), Schedule(num_slots=700, steps=60)
    with DeviceRows(features, labels, device=choose(device), **ran) as rows:
        there = rows.advance(
            start, steps=60, schedule=schedule, noise=Replayed(9), on_progress=lambda steps_done: None, **settings
        )
    here, noise = start, Replayed(9)
    with HostRows(features, labels, **ran) as host:
        for _ in range(60):
            here = projected_noisy_step(noise, here, rows=host, num_slots=700, **settings)
    np.testing.assert_allclose(there.parameters.numpy(), here.parameters.numpy(), atol=1e-6)
