"""Steps that read batches in order, and a step size that falls at the end of a run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.worker.langevin.conftest import mechanism_of
from worker.langevin import chain
from worker.langevin.gradient import HostRows
from worker.langevin.schedule import Schedule

Rows = Callable[..., tuple[Any, Any]]
SETTINGS = {"l2": 0.05, "step_size": 1.5, "noise_scale": 0.2, "radius": 20.0}


class Replayed:
    """Noise that gives both engines the same numbers for a seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def normal(self, size: int) -> torch.Tensor:
        return torch.from_numpy(self._generator.standard_normal(size))

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        return self.normal(size).mul_(spread).round_()

    def fill(self, out: torch.Tensor) -> None:
        for step in out:
            step.copy_(self.normal(step.numel()))


def written_out(
    features: Any, labels: Any, *, steps: int, batches: int, cool_down: int, first_step: int, seed: int, initial: Any
) -> Any:
    """Return the result of the chain, computed in double precision as docs/mathematics defines it."""
    x, noise = initial.copy(), Replayed(seed)
    for done in range(steps):
        eta = 1.5 * min(1.0, (steps - done) / cool_down)
        batch = (first_step + done) % batches
        rows = [slot for slot in range(43) if 43 * batch // batches <= slot < 43 * (batch + 1) // batches]
        residuals = 1 / (1 + np.exp(-features[rows].astype(float) @ x[0])) - labels[rows]
        gradient = residuals @ features[rows] / len(rows) + 0.05 * x
        x = x - eta * gradient + np.sqrt(2 * eta) * 0.2 * noise.normal(6).numpy()
        x *= min(1.0, 20.0 / np.linalg.norm(x))
    return x


RUNS = pytest.mark.parametrize(
    ("steps", "batches", "cool_down", "first_step"),
    [(30, 1, 1, 0), (30, 4, 1, 0), (30, 43, 8, 17), (3, 5, 8, 4), (1, 7, 16, 6), (25, 10, 25, 10**15)],
)


@RUNS
def test_steps_read_the_batches_in_order(
    steps: int, batches: int, cool_down: int, first_step: int, random_rows: Rows
) -> None:
    """Steps read the batches in order, starting where the previous run stopped, and the step size decreases over the
    last steps."""
    features, labels = random_rows(43, 6)
    initial = np.random.default_rng(1).standard_normal((1, 6))
    told = {"steps": steps, "first_step": first_step}
    expected = written_out(features, labels, batches=batches, cool_down=cool_down, seed=3, initial=initial, **told)
    mechanism = mechanism_of(num_slots=43, batch_size=43 // batches, cool_down=cool_down, grid=0.0, **SETTINGS)
    assert mechanism.num_batches == batches
    ran = chain.run(
        mechanism=mechanism,
        features=features,
        labels=labels,
        initial=initial,
        noise=Replayed(3),
        on_progress=lambda done: None,
        **told,
    )
    np.testing.assert_allclose(ran.parameters, expected, atol=1e-6)


def test_consecutive_runs_equal_one_run(random_rows: Rows) -> None:
    """Without a cool-down, consecutive runs give the same result as one run of all their steps."""
    features, labels = random_rows(43, 6)
    noise, parameters, done = Replayed(5), np.zeros((1, 6)), 0
    settings = {
        "mechanism": mechanism_of(num_slots=43, batch_size=43 // 6, grid=0.0, **SETTINGS),
        "features": features,
        "labels": labels,
        "on_progress": lambda n: None,
    }
    for steps in (5, 1, 17, 8):
        ran = chain.run(initial=parameters, steps=steps, first_step=done, noise=noise, **settings)
        parameters, done = ran.parameters, done + steps
    whole = chain.run(initial=np.zeros((1, 6)), steps=done, noise=Replayed(5), **settings)
    np.testing.assert_array_equal(parameters, whole.parameters)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize(("num_rows", "width", "batches"), [(43, 6, 4), (5000, 33, 7), (20, 1, 20), (9000, 3, 1)])
def test_gradients_of_batches_add_up(
    num_rows: int, width: int, batches: int, num_classes: int, random_rows: Rows
) -> None:
    """The gradients of all batches add up to the gradient of all rows. Each is bit-identical to the gradient computed
    from a table that contains only that batch's rows."""
    data = random_rows(num_rows, width, num_classes)
    here = torch.from_numpy(np.random.default_rng(2).standard_normal((1 if num_classes == 2 else num_classes, width)))
    schedule = Schedule(num_slots=num_rows, num_batches=batches, steps=1)
    with HostRows(*data, num_classes=num_classes) as rows:
        whole, parts = rows.gradient(here), []
        for batch in range(batches):
            read = schedule.rows_of(batch)
            parts.append(rows.gradient(here, read))
            with HostRows(*(part[read] for part in data), num_classes=num_classes, threads=rows.threads) as alone:
                assert torch.equal(alone.gradient(here), parts[-1])
    np.testing.assert_allclose(sum(part.numpy() for part in parts), whole.numpy(), atol=1e-5)


@pytest.mark.parametrize(("num_slots", "batches"), [(1, 1), (43, 4), (43, 43), (1000, 999), (10**15, 10**9 + 7)])
def test_every_slot_is_in_one_batch(num_slots: int, batches: int) -> None:
    """Batches are consecutive, none is empty, and their sizes differ by at most one slot."""
    schedule = Schedule(num_slots=num_slots, num_batches=batches, steps=1)
    looked_at = range(batches) if batches < 2000 else (0, 1, batches // 2, batches - 2, batches - 1)
    for batch in looked_at:
        rows = schedule.rows_of(batch)
        assert num_slots // batches <= rows.stop - rows.start <= -(-num_slots // batches)
        assert rows.stop == (num_slots if batch == batches - 1 else schedule.rows_of(batch + 1).start)
    assert schedule.rows_of(0).start == 0


@pytest.mark.parametrize(
    "wrong", [{"num_batches": 0}, {"num_batches": 44}, {"cool_down": 0}, {"first_step": -1}, {"steps": 0}]
)
def test_impossible_schedules_are_refused(wrong: dict[str, int]) -> None:
    """A schedule without batches or steps, or with more batches than slots, is refused with a specific error."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Schedule(**{"num_slots": 43, "steps": 5} | wrong)
