"""Rivals that descend without noise on the way: Descent-to-Delete, and two uncertified kinds of fine-tuning.

- Descent-to-Delete: Neel, Roth and Sharifi-Malvajerdi, ALT 2021, arXiv 2007.02923, by the bounds of
  `n1_sigma` and `n2_d2d` of the calculator. With a secret state the noiseless iterate is kept, and every publication
  has fresh noise; without one each request starts from what was published. Records are removed, not made null.
- Negative gradient (Golatkar, Achille and Soatto, CVPR 2020, as a baseline): a few steps with the sign of the record's
  gradient turned round.
- Pseudo-labels (Graves, Nagisetty and Ganesh, AAAI 2021): a few steps with another label, drawn at random, in the
  place of the record's. With two classes there is only one other.
"""

import secrets
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.rivals.refits import fitted
from benchmarks.rivals.rival import NOTHING, Certified, Claim, Record, Rows, Setting, State, Weights, gaussian
from lethe.features.theorems import evaluate
from worker.langevin import gradient

FINE_TUNING = 5
"""Steps of fine-tuning: an epoch each, as these papers spend a few."""


def descend(
    rows: Rows, start: Weights, *, l2: float, step_size: float, steps: int, against: Record | None = None
) -> Weights:
    """`steps` full steps on the rows that are left; the gradient of the record `against`, if any, is subtracted."""
    weights, count = torch.tensor(start), rows.count
    with gradient.HostRows(rows.features, rows.labels, num_classes=rows.num_classes, threads=1) as passes:
        for _ in range(steps):
            downhill = passes.gradient(weights)
            if against is not None:
                downhill -= _gradient(against, weights, rows.num_classes)
            weights = (1 - step_size * l2) * weights - step_size / count * downhill
    return weights.numpy()


def _gradient(record: Record, weights: torch.Tensor, num_classes: int) -> torch.Tensor:
    alone = np.ascontiguousarray(record.features[None])
    labels = np.array([record.label], np.int32)
    with gradient.HostRows(alone, labels, num_classes=num_classes, threads=1) as passes:
        return passes.gradient(weights)


# --- Descent-to-Delete -----------------------------------------------------------------------------------------------

_D2D = "Neel, Roth and Sharifi-Malvajerdi 2021, Theorems N.1 and N.2 of Chien et al. 2024"


def _claim(secret: str) -> Claim:
    return Claim(
        kind="certified",
        guarantee="unlearning (epsilon, delta)",
        compared_with="its own learning and publication on the data without the record",
        adjacency="record against none",
        adaptive="no: non-adaptive requests only",
        secret=secret,
        reference=_D2D,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    noiseless: Weights | None
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentToDelete:
    """`iterations` per request if the noiseless iterate is kept, None if nothing is."""

    name: str
    title: str
    claim: Claim
    setting: Setting
    iterations: int | None
    relearns_as_reference: bool = True

    @property
    def l2(self) -> float:
        return self.setting.l2

    @property
    def noise_std(self) -> float:
        if self.iterations is not None:
            return _with_secret(self.setting, self.iterations)["sigma"]
        return _without_secret(self.setting, 1)["sigma"]

    def learn(self, rows: Rows) -> State:
        least = self.iterations if self.iterations is not None else int(_without_secret(self.setting, 1)["I"])
        steps = int(_with_secret(self.setting, least)["T"])
        return self._published(self._descended(rows, np.zeros(self.setting.shape), steps), steps, 0)

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        kept: _Kept = state.kept
        requests = kept.requests + 1
        if self.iterations is not None:
            start, steps = kept.noiseless, self.iterations
        else:
            start, steps = state.weights, int(_without_secret(self.setting, requests)["iters"])
        assert start is not None
        return self._published(self._descended(rows, start, steps), steps, requests)

    def certified(self, state: State) -> Certified:
        return Certified(forgotten=self.setting.epsilon, adaptive=None)

    def _descended(self, rows: Rows, start: Weights, steps: int) -> Weights:
        return descend(rows, start, l2=self.l2, step_size=self.setting.step_size, steps=steps)

    def _published(self, noiseless: Weights, steps: int, requests: int) -> State:
        kept = _Kept(noiseless=None if self.iterations is None else noiseless, requests=requests)
        return State(weights=noiseless + gaussian(noiseless.shape, self.noise_std), passes=steps, kept=kept)


def with_secret_state(setting: Setting, noise_std: float) -> DescentToDelete:
    """The fewest iterations whose noise of publication is no more than `noise_std`."""
    iterations = 1
    while _with_secret(setting, iterations)["sigma"] > noise_std:
        iterations += 1
    return DescentToDelete(
        name="d2d_secret",
        title="Descent-to-Delete, secret state",
        claim=_claim("the noiseless iterate"),
        setting=setting,
        iterations=iterations,
    )


def without_secret_state(setting: Setting) -> DescentToDelete:
    return DescentToDelete(
        name="d2d",
        title="Descent-to-Delete, no secret",
        claim=_claim("nothing"),
        setting=setting,
        iterations=None,
    )


def _with_secret(setting: Setting, iterations: int) -> dict[str, float]:
    asked = setting.constants | {"eps": setting.epsilon, "delta": setting.delta, "I": iterations}
    found: dict[str, float] = evaluate("n1_sigma", asked | {"R": asked["Mlip"] / asked["m"]})
    return found


def _without_secret(setting: Setting, request: int) -> dict[str, float]:
    asked = setting.constants | {"eps": setting.epsilon, "delta": setting.delta}
    found: dict[str, float] = evaluate("n2_d2d", asked | {"d": setting.num_parameters, "i": request})
    return found


# --- fine-tuning, uncertified ----------------------------------------------------------------------------------------


def _uncertified(reference: str) -> Claim:
    return Claim(
        kind="none",
        guarantee="none",
        compared_with="-",
        adjacency="-",
        adaptive="no",
        secret="nothing",
        reference=reference,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """From a plain fit; `pseudo_label`: with another label for the record, otherwise against its gradient."""

    name: str
    title: str
    claim: Claim
    setting: Setting
    pseudo_label: bool
    relearns_as_reference: bool = True

    @property
    def l2(self) -> float:
        return self.setting.l2

    def learn(self, rows: Rows) -> State:
        weights, passes = fitted(rows, self.l2)
        return State(weights=weights, passes=passes)

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        weights = descend(
            _relabelled(rows, record) if self.pseudo_label else rows,
            state.weights,
            l2=self.l2,
            step_size=self.setting.step_size,
            steps=FINE_TUNING,
            against=None if self.pseudo_label else record,
        )
        return State(weights=weights, passes=FINE_TUNING)

    def certified(self, state: State) -> Certified:
        return NOTHING


def _relabelled(rows: Rows, record: Record) -> Rows:
    """The rows that are left, and the record with another label behind them."""
    other = (record.label + 1 + secrets.randbelow(rows.num_classes - 1)) % rows.num_classes
    return Rows(
        features=np.vstack((rows.features, record.features)),
        labels=np.append(rows.labels, np.int32(other)),
        num_classes=rows.num_classes,
    )


def negative_gradient(setting: Setting) -> FineTuning:
    return FineTuning(
        name="negative_gradient",
        title="negative gradient",
        claim=_uncertified("Golatkar, Achille and Soatto 2020, baseline"),
        setting=setting,
        pseudo_label=False,
    )


def pseudo_label(setting: Setting) -> FineTuning:
    return FineTuning(
        name="pseudo_label",
        title="pseudo-label",
        claim=_uncertified("Graves, Nagisetty and Ganesh 2021"),
        setting=setting,
        pseudo_label=True,
    )
