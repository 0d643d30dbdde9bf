"""What a rival is: it learns, it forgets one record after the other, and it says what it guarantees."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lethe.proof.losses import Objective, gradient_bound, num_weight_rows, smoothness
from worker.langevin.noise import SystemNoise

Weights = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row, as it was before it was overwritten; all zeros if nobody was there."""

    features: NDArray[np.float32]  # (d,)
    label: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Training rows in slots: who is forgotten becomes null, in place."""

    features: NDArray[np.float32]  # (n, d), norms <= 1
    labels: NDArray[np.int32]  # (n,)
    num_classes: int

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def count(self) -> int:
        """Rows that are still somebody's."""
        return int(self.features.any(axis=1).sum())

    def copy(self) -> "Rows":
        return replace(self, features=self.features.copy())

    def at(self, slots: NDArray[np.int64]) -> "Rows":
        return replace(self, features=self.features[slots], labels=self.labels[slots])

    def take(self, row: int) -> Record:
        """The record of a slot, which is null from now on."""
        taken = Record(features=self.features[row].copy(), label=int(self.labels[row]))
        self.features[row] = 0
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`weights`: what is published now. `passes`: rows that were read to make them, over the number of slots. `kept`:
    what stays with the curator."""

    weights: Weights  # (1, d) or (C, d); a pile of them for an ensemble
    passes: float
    kept: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is promised of the model after a deletion, in words; the numbers come from `Rival.certified`."""

    kind: str  # certified, exact or none
    guarantee: str
    compared_with: str
    adjacency: str
    adaptive: str  # does it survive requests chosen by what was published?
    secret: str  # what must outlive the request, unpublished
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The epsilons that hold now, at the target's delta: of the last version against retraining, and of all versions
    together for whoever was forgotten last, against requesters who read them. None: nothing is promised."""

    forgotten: float | None
    adaptive: float | None


NOTHING = Certified(forgotten=None, adaptive=None)


class Rival(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def claim(self) -> Claim: ...
    @property
    def l2(self) -> float: ...
    @property
    def relearns_as_reference(self) -> bool:
        """Its guarantee compares with learning afresh; otherwise with the same steps on the data without the record."""

    def learn(self, rows: Rows) -> State: ...

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        """The state after `record` has left `rows`."""

    def certified(self, state: State) -> Certified: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The problem and the target that all share."""

    num_slots: int
    num_classes: int
    num_features: int
    l2: float
    requests: int
    epsilon: float = 1.0

    @property
    def delta(self) -> float:
        return 1 / self.num_slots

    @property
    def shape(self) -> tuple[int, int]:
        return num_weight_rows(self.num_classes), self.num_features

    @property
    def num_parameters(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def constants(self) -> dict[str, float]:
        """As the bounds of the calculator name them."""
        kind = Objective.LOGISTIC_REGRESSION
        return {
            "Mlip": gradient_bound(kind, self.num_classes),
            "m": self.l2,
            "L": smoothness(kind, self.num_classes, self.l2),
            "n": self.num_slots,
        }

    @property
    def step_size(self) -> float:
        """2 / (L + m): the fastest."""
        return 2 / (self.constants["L"] + self.constants["m"])


def gaussian(shape: tuple[int, ...], scale: float) -> Weights:
    """Fresh noise, never seeded."""
    noise: Weights = scale * SystemNoise().normal(int(np.prod(shape))).numpy().reshape(shape)
    return noise
