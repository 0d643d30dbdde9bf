"""Steps on a device that read one batch after the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.worker.langevin.conftest import mechanism_of
from tests.worker.langevin.test_batches import RUNS, SETTINGS, Replayed, written_out
from worker.features.gpu.engines import DeviceRows
from worker.langevin.gradient import HostRows
from worker.langevin.schedule import Schedule
from worker.langevin.step import State

Rows = Callable[..., tuple[Any, Any]]


@RUNS
def test_device_steps_equal_the_chain(
    steps: int, batches: int, cool_down: int, first_step: int, random_rows: Rows
) -> None:
    """Steps on a device agree with the chain written out step by step: they process the batches in order, continue
    where the previous run stopped, and decrease the step size during the cool-down."""
    features, labels = random_rows(43, 6)
    initial = np.random.default_rng(1).standard_normal((1, 6))
    told = {"steps": steps, "first_step": first_step}
    expected = written_out(features, labels, batches=batches, cool_down=cool_down, seed=3, initial=initial, **told)
    mechanism = mechanism_of(num_slots=43, batch_size=43 // batches, cool_down=cool_down, grid=0.0, **SETTINGS)
    with DeviceRows(features, labels, num_classes=2, device=torch.device("cpu")) as rows:
        there = rows.advance(
            State(parameters=torch.tensor(initial), steps_done=0),
            steps=steps,
            schedule=Schedule.of(mechanism, **told),
            noise=Replayed(3),
            on_progress=lambda done: None,
            **SETTINGS,
        )
    np.testing.assert_allclose(there.parameters.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("slots", [(slice(0, 43),), (slice(20, 43), slice(0, 11)), (slice(4, 30),)])
def test_a_device_holds_only_the_given_slots(slots: tuple[slice, ...], random_rows: Rows) -> None:
    """A device stores only the rows of the given slots and computes the same gradients from them. When other slots are
    given, the previous rows are overwritten."""
    features, labels = random_rows(43, 6)
    here = torch.from_numpy(np.random.default_rng(2).standard_normal((1, 6)))
    settings = {"num_classes": 2, "device": torch.device("cpu")}
    with (
        DeviceRows(features, labels, slots=(slice(0, 2),), **settings) as rows,
        HostRows(features, labels, num_classes=2) as host,
    ):
        before = rows._rows
        rows.look(slots)
        assert not before.any()
        assert len(rows._rows) == sum(one.stop - one.start for one in slots)
        for one in slots:
            inside = slice(one.start + 1, one.stop - 1)
            np.testing.assert_allclose(rows.gradient(here, inside), host.gradient(here, inside), atol=1e-5)
        if len(rows._rows) < 43:
            with pytest.raises(IndexError, match="on the device"):
                rows.gradient(here, slice(0, 43))
