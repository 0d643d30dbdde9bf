import math
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from worker.features.gpu.engines import DeviceRows, Walk
from worker.features.gpu.passes import full_precision
from worker.langevin.engines import choose
from worker.langevin.gradient import HostRows
from worker.langevin.schedule import Schedule
from worker.langevin.step import State, projected_noisy_step

Rows = Callable[..., tuple[Any, Any]]
CPU = torch.device("cpu")
DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
HOST = {"num_slots": 700, "l2": 0.05, "step_size": 1.5, "noise_scale": 0.2, "radius": 20.0}
SETTINGS = {
    "schedule": Schedule(num_slots=700, steps=10**9),
    "l2": 0.05,
    "step_size": 1.5,
    "noise_scale": 0.2,
    "radius": 20.0,
}
FALSE_ALARM = 1e-9


def unheard(steps_done: int) -> None:
    pass


class Replayed:
    """Noise that fills buffers with the numbers of a seed, or from some step on with `poison`, and keeps a reference to
    them."""

    def __init__(self, seed: int, *, poison: float | None = None, after: int = 0) -> None:
        self._generator = np.random.default_rng(seed)
        self._poison, self._clean = poison, after
        self.filled: list[torch.Tensor] = []

    def normal(self, size: int) -> torch.Tensor:
        return torch.from_numpy(self._generator.standard_normal(size))

    def fill(self, out: torch.Tensor) -> None:
        self.filled.append(out)
        for step in out:
            step.copy_(self.normal(step.numel()))
            if self._poison is not None and self._clean == 0:
                step.fill_(self._poison)
            self._clean -= 1


def buffers(holder: object) -> list[torch.Tensor]:
    """Return all tensors that an object of the engine holds, except rows and labels."""
    held = {name: value for name, value in vars(holder).items() if isinstance(value, torch.Tensor)}
    return [value for name, value in held.items() if name not in ("_rows", "_labels", "_classes", "_radius")]


def opened(data: tuple[Any, Any], num_classes: int = 2, device: str = "cpu") -> DeviceRows:
    features, labels = data
    return DeviceRows(features, labels, num_classes=num_classes, device=choose(device))


def at(parameters: torch.Tensor) -> State:
    return State(parameters=parameters, steps_done=0)


def stepped(data: tuple[Any, Any], num_classes: int, initial: Any, steps: int, noise: Any, **settings: Any) -> Any:
    """Return the parameters after `steps` single steps on the CPU."""
    state = State(parameters=torch.tensor(initial), steps_done=0)
    with HostRows(*data, num_classes=num_classes, threads=None) as rows:
        for _ in range(steps):
            state = projected_noisy_step(noise, state, rows=rows, **settings)
    return state.parameters.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize(("num_rows", "width"), [(700, 6), (700, 33), (3, 16), (1, 1)])
def test_device_steps_equal_the_cpu(
    num_rows: int, width: int, num_classes: int, device: str, random_rows: Rows
) -> None:
    """With the same noise and any shape of rows, 60 steps on a device agree with 60 steps on the CPU to 1e-6, the
    precision of float32 products."""
    data = random_rows(num_rows, width, num_classes)
    initial = np.random.default_rng(1).standard_normal((1 if num_classes == 2 else num_classes, width))
    with opened(data, num_classes, device) as rows:
        there = rows.advance(
            at(torch.tensor(initial)), steps=60, noise=Replayed(9), on_progress=unheard, **SETTINGS
        ).parameters
    expected = stepped(data, num_classes, initial, 60, Replayed(9), **HOST)
    assert (there.dtype, there.device) == (torch.float64, CPU)
    np.testing.assert_allclose(there.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("num_classes", "num_rows"), [(2, 20_001), (3, 20_001), (2, 5), (3, 5)])
def test_gradient_equals_the_formula(num_classes: int, num_rows: int, device: str, random_rows: Rows) -> None:
    """Over several blocks, the gradient agrees to 2e-8 per row with a float64 sum of (p - y) x over the rows."""
    features, labels = random_rows(num_rows, 112, num_classes)
    here = np.random.default_rng(1).standard_normal((1 if num_classes == 2 else num_classes, 112)) * 3
    wide = features.astype(float)
    if num_classes == 2:
        slopes = 1 / (1 + np.exp(-wide @ here.T)) - labels[:, None]
    else:
        odds = np.exp(wide @ here.T)
        slopes = odds / odds.sum(axis=1, keepdims=True) - np.eye(num_classes)[labels]
    with opened((features, labels), num_classes, device) as rows:
        np.testing.assert_allclose(rows.gradient(torch.tensor(here)).numpy(), slopes.T @ wide, atol=2e-8 * num_rows)


@pytest.mark.parametrize("device", DEVICES)
def test_null_rows_add_nothing(device: str, random_rows: Rows) -> None:
    """Null rows with any label contribute exactly zero to the gradient, even if all rows are null."""
    features, labels = random_rows(300, 7, 3)
    features[::2] = 0
    here = torch.ones(3, 7, dtype=torch.float64)
    with opened((features, labels), 3, device) as rows, opened((features, labels * 0 + 1), 3, device) as others:
        there, elsewhere = rows.gradient(here), others.gradient(here)
    assert not torch.equal(there, elsewhere)
    labels[::2] = 2 - labels[::2]
    with opened((features, labels), 3, device) as rows:
        assert torch.equal(rows.gradient(here), there)
    with opened((np.zeros_like(features), labels), 3, device) as rows:
        assert not rows.gradient(here).any()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_iterates_without_data_have_the_expected_distribution(device: str) -> None:
    """With the device's noise and only null rows, T steps with contraction c and noise nu yield an iterate whose
    coordinates are each distributed as N(0, nu^2 (1 - c^2T) / (1 - c^2)). On 5,000 coordinates, a chi-squared test of
    the variance and a Kolmogorov-Smirnov test of the distribution each have a false-alarm rate of 1e-9."""
    steps, width, step_size, noise_scale, l2 = 100, 5_000, 2.0, 0.3, 0.05
    with opened((np.zeros((1, width), np.float32), np.zeros(1, np.int32)), device=device) as rows:
        there = rows.advance(
            at(torch.zeros(1, width, dtype=torch.float64)),
            steps=steps,
            schedule=Schedule(num_slots=1, steps=steps),
            l2=l2,
            step_size=step_size,
            noise_scale=noise_scale,
            radius=1e9,
            on_progress=unheard,
        ).parameters
    squared = (1 - step_size * l2) ** 2
    std = math.sqrt(2 * step_size * noise_scale**2 * sum(squared**t for t in range(steps)))
    spread = float((there**2).sum()) / std**2
    assert stats.chi2.ppf(FALSE_ALARM / 2, width) < spread < stats.chi2.isf(FALSE_ALARM / 2, width)
    assert stats.kstest(there.numpy().ravel(), "norm", args=(0, std)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("device", DEVICES)
def test_iterates_stay_in_the_ball(device: str, random_rows: Rows) -> None:
    """With strong noise the iterates end on the ball's surface. Iterates inside the ball are not changed by a single
    bit."""
    data = random_rows(700, 6)
    with opened(data, device=device) as rows:
        for seed in range(5):
            settings = SETTINGS | {"noise_scale": 100.0, "radius": 0.8}
            here = torch.full((1, 6), 0.3, dtype=torch.float64)
            there = rows.advance(at(here), steps=7, noise=Replayed(seed), on_progress=unheard, **settings).parameters
            assert float(torch.linalg.vector_norm(there)) == pytest.approx(0.8, rel=1e-12)
        ends = [
            rows.advance(
                at(torch.zeros(1, 6, dtype=torch.float64)),
                steps=20,
                noise=Replayed(5),
                on_progress=unheard,
                **SETTINGS | {"radius": radius},
            ).parameters
            for radius in (20.0, 1e12)
        ]
    assert torch.equal(*ends)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e200])
@pytest.mark.parametrize("after", [0, 5])
def test_a_step_that_is_not_finite_is_refused(poison: float, after: int, device: str, random_rows: Rows) -> None:
    """A step whose noise or norm is not finite stops the run, even within a batch of steps. The error quotes no number,
    the buffers are overwritten, and the rows remain usable."""
    data = random_rows(700, 6)
    here = torch.ones(1, 6, dtype=torch.float64)
    noise = Replayed(1, poison=poison, after=after)
    with opened(data, device=device) as rows:
        before = rows.gradient(here)
        with pytest.raises(FloatingPointError) as refused:
            rows.advance(at(here), steps=40, noise=noise, on_progress=unheard, **SETTINGS)
        assert not any(character.isdigit() for character in str(refused.value))
        assert not any(buffer.any() for buffer in noise.filled + buffers(rows._pass))
        assert torch.equal(rows.gradient(here), before)


def test_progress_chunks_grow(random_rows: Rows) -> None:
    """The first progress report comes after one step and the last after the final step. Each chunk of steps between two
    reports is at most eight times as long as the previous chunk."""
    told: list[int] = []
    with opened(random_rows(700, 6)) as rows:
        rows.advance(at(torch.zeros(1, 6, dtype=torch.float64)), steps=1000, on_progress=told.append, **SETTINGS)
    chunks = [later - earlier for earlier, later in pairwise([0, *told])]
    assert (told[-1], chunks[0]) == (1000, 1)
    assert all(1 <= later <= 8 * earlier for earlier, later in pairwise(chunks))


@pytest.mark.slow
def test_progress_is_frequent_if_steps_are_slow(random_rows: Rows) -> None:
    """Progress is reported at least every half second if a step takes a tenth of a second."""

    class Slow(Replayed):
        def fill(self, out: torch.Tensor) -> None:
            super().fill(out)
            time.sleep(0.1 * len(out))

    told = [time.monotonic()]
    with opened(random_rows(700, 6)) as rows:
        rows.advance(
            at(torch.zeros(1, 6, dtype=torch.float64)),
            steps=12,
            noise=Slow(1),
            on_progress=lambda steps_done: told.append(time.monotonic()),
            **SETTINGS,
        )
    # The prediction for the first chunk can be wrong.
    assert sorted(later - earlier for earlier, later in pairwise(told))[-2] < 0.5


@pytest.mark.parametrize("device", DEVICES)
def test_a_progress_callback_can_stop_the_steps(device: str, random_rows: Rows) -> None:
    """An exception from `on_progress` stops the run at once and propagates to the caller. No iterate or noise remains
    in memory."""

    def stop(steps_done: int) -> None:
        told.append(steps_done)
        if steps_done > 5:
            raise InterruptedError

    told: list[int] = []
    noise = Replayed(1)
    with opened(random_rows(700, 6), device=device) as rows:
        here = torch.ones(1, 6, dtype=torch.float64)
        with pytest.raises(InterruptedError):
            rows.advance(at(here), steps=10_000, noise=noise, on_progress=stop, **SETTINGS)
        assert not any(buffer.any() for buffer in noise.filled + buffers(rows._pass))
    assert told[0] == 1
    assert all(steps_done <= 5 for steps_done in told[:-1])
    assert told[-1] > 5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_classes", [2, 3])
def test_nothing_stays_in_a_buffer(num_classes: int, device: str, random_rows: Rows) -> None:
    """After a `Walk` has ended and after a gradient has been computed, every buffer that contained an iterate, a
    gradient or noise is zero."""
    noise = Replayed(1)
    here = torch.ones(1 if num_classes == 2 else 3, 6, dtype=torch.float64)
    with opened(random_rows(700, 6, num_classes), num_classes, device) as rows, rows._computing():
        with Walk(rows._pass, at(here), noise=noise, **SETTINGS) as walk:
            walk.take(3)
            used = noise.filled + buffers(walk) + buffers(rows._pass)
            assert sum(bool(buffer.any()) for buffer in used) > len(used) / 2
        assert not any(buffer.any() for buffer in used)
        assert rows.gradient(here).any()
        assert not any(buffer.any() for buffer in buffers(rows._pass))
    assert torch.equal(here, torch.ones_like(here))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_are_overwritten_on_close(device: str, random_rows: Rows) -> None:
    """After the context manager exits, the device's copy of the rows is zero and the caller's rows are unchanged."""
    features, labels = random_rows(700, 6)
    before = features.copy()
    with opened((features, labels), device=device) as rows:
        copies = rows._rows, rows._labels
        np.testing.assert_array_equal(copies[0][:, :6].cpu().numpy(), features)
        np.testing.assert_array_equal(copies[1].cpu().numpy(), labels)
    assert not any(copy.any() for copy in copies)
    np.testing.assert_array_equal(features, before)


@pytest.mark.slow
def test_rows_are_read_from_a_read_only_file(tmp_path: Any, random_rows: Rows) -> None:
    """Rows in a read-only memory map that is larger than one upload are copied bit for bit."""
    features = np.tile(random_rows(1000, 32)[0], (700, 1))
    labels = np.zeros(len(features), np.int32)
    features.tofile(tmp_path / "features")
    mapped = np.memmap(tmp_path / "features", np.float32, mode="r", shape=features.shape)
    with opened((mapped, labels)) as rows:
        assert torch.equal(rows._rows, torch.from_numpy(features))


def test_products_have_full_precision() -> None:
    """If the process has set torch to a reduced precision, passes still use full precision, and the setting is restored
    afterwards."""
    torch.set_float32_matmul_precision("medium")
    try:
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_cpu_can_be_chosen() -> None:
    """The setting `cpu` selects the CPU."""
    assert choose("cpu") == CPU


def test_auto_is_the_first_gpu_or_else_the_cpu() -> None:
    """The setting `auto` selects the first GPU that torch finds, or else the CPU."""
    assert choose("auto") == torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def test_a_missing_gpu_is_refused() -> None:
    """If the chosen GPU does not exist, the error states how many GPUs torch sees and suggests choosing another
    device."""
    with pytest.raises(ValueError, match=r"device='cuda:999' to be one of the \d+ GPUs that torch sees.*choose auto"):
        choose("cuda:999")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cuda:0x1", "CPU", "", "cuda:0 ", "cuda:٣", "cuda\n"])
def test_an_invalid_device_is_refused(device: str) -> None:
    """Any setting other than auto, cpu, cuda and cuda:i raises an error that lists the valid settings."""
    with pytest.raises(ValueError, match="to be auto, cpu or cuda:i"):
        choose(device)
