"""The mechanism: everything about a model's training that its guarantee depends on, frozen at creation.

One `Mechanism` feeds the engine (which runs it) and the accountant (which proves it); neither recomputes the other's
numbers. Only public facts go in: the objective, sizes, and settings; never a statistic of the data.
"""

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from lethe.proof.errors import (
    DomainError,
    PreconditionError,
    require_count,
    require_finite,
    require_nonnegative,
    require_positive,
)
from lethe.proof.losses import (
    Objective,
    gradient_bound,
    require_class_weights,
    require_loss,
    require_second_moment,
    smoothness,
)
from lethe.proof.network import PublicNetwork


class Adjacency(StrEnum):
    """The meaning of "without this record"."""

    ZERO_OUT = "zero_out"
    """The record against the null record (all-zero features: it contributes no gradient)."""
    REPLACE = "replace"
    """The record against any other admissible record."""


MIN_RELATIVE_NOISE = 1e-12
"""Least noise per step relative to the radius: below it float64 parameters cannot carry the noise that is certified."""
_LEAST_NOISE = 1e-150  # below it the variance underflows
LONGEST_COOL_DOWN = 1024
_FINEST_GRID = 2.0**-51  # relative to the radius: float64 holds every multiple of it in a ball of 4 R


@dataclass(frozen=True, kw_only=True)  # no slots: what follows from the settings is computed once
class Mechanism:
    """Projected noisy gradient descent in cyclic batches, x <- Proj_R(x - eta grad f_t(x) + N(0, 2 eta sigma^2 I)).

    Step t of a chain, counted over all its runs, reads batch t mod B of the B = floor(num_slots / batch_size) batches,
    each a range of slots of as equal a size as can be, and never smaller than `batch_size` b. Over the last `cool_down`
    q steps of each run eta falls evenly to eta/q; a shorter run takes as many of them, the last.

    Symbols: 1 <= `batch_size` <= `num_slots` (0 for all of them, which makes B = 1), 1 <= `cool_down` <= `learn_steps`,
    `step_size` eta > 0, `noise_scale` sigma > 0, `radius` R > 0 of the ball about the origin, `l2` > 0, `num_slots` n0
    >= 1 (public and fixed when the dataset is created: deleting writes the null record into a slot), `num_classes` C >=
    2 (2 for the hinge, 1 for a regression; of labels `MOST_LABELS` at most), `loss_width` > 0 of the Huber loss, of the
    hinge and of Poisson's, None of any other, `learn_steps` T >= 1. `network`: the public one whose features the rows
    are, or whose tangent the model is; None where rows are records as they came. `grid` g: any step, the last of a run
    among them, may round its mean and its noisy result, before the projection, to multiples of g in each of
    `num_parameters` d >= 1 coordinates; a power of two, or 0 for no rounding at all. `second_moment` Lambda, 0 < Lambda
    <= 1: a public bound on the largest eigenvalue of (1/b) sum x x^T over the rows of each batch, None for the 1 that
    rows of norm <= 1 have anyway. `class_weights` v, 0 < v_c <= 1 and the largest 1: public factors of the losses of
    rows by their class; None for 1. `weight_bound` W > 0: each row's loss counts its own weight over W, from 0 to 1,
    and the weight is stored and erased with the row; None where all count 1.

    Assumptions: rows have norm <= 1 (checked at ingestion and again before each run), every parameter is regularised,
    the contraction is below 1, and each batch keeps to Lambda (checked when it is learned, `second-moment.md`).

    Raises `DomainError` for a number out of range, `PreconditionError` when no contraction or no usable noise is left.
    """

    objective: Objective
    num_slots: int
    num_classes: int
    l2: float
    step_size: float
    noise_scale: float
    radius: float
    learn_steps: int
    grid: float = 0.0
    num_parameters: int = 1
    batch_size: int = 0
    cool_down: int = 1
    loss_width: float | None = None
    network: PublicNetwork | None = None
    second_moment: float | None = None
    class_weights: tuple[float, ...] | None = None
    weight_bound: float | None = None

    def __post_init__(self) -> None:
        require_count(1, num_slots=self.num_slots, learn_steps=self.learn_steps, num_parameters=self.num_parameters)
        require_loss(self.objective, self.num_classes, self.loss_width)
        if self.is_tangent and not (self.objective.is_logistic and self.second_moment is None):
            raise DomainError(f"Expected no linearisation for {self.objective}, nor with a second_moment")
        require_positive(l2=self.l2, step_size=self.step_size, noise_scale=self.noise_scale, radius=self.radius)
        require_nonnegative(grid=self.grid)
        if self.batch_size == 0 and type(self.batch_size) is int:
            object.__setattr__(self, "batch_size", self.num_slots)
        require_count(1, batch_size=self.batch_size, cool_down=self.cool_down)
        if self.batch_size > self.num_slots:
            raise DomainError(f"Expected batch_size={self.batch_size} <= num_slots={self.num_slots}")
        if self.cool_down > min(self.learn_steps, LONGEST_COOL_DOWN):
            raise DomainError(
                f"Expected cool_down={self.cool_down} <= learn_steps={self.learn_steps} and <= {LONGEST_COOL_DOWN}"
            )
        if self.second_moment is not None:
            require_second_moment(self.second_moment)
            if self.learn_steps < self.num_batches:
                raise PreconditionError(
                    "every_batch_checked",
                    f"Expected learn_steps={self.learn_steps} >= {self.num_batches} batches: learning checks them all",
                )
        if self.class_weights is not None:
            require_class_weights(self.objective, self.num_classes, self.class_weights)
        if self.weight_bound is not None:
            require_positive(weight_bound=self.weight_bound)
        if not self.slowest_contraction < 1:
            raise PreconditionError(
                "contraction_below_one",
                f"Expected contraction={self.slowest_contraction:.17g} < 1:"
                f" choose step_size < 2/L = {2 / self.smoothness:.6g}",
            )
        require_finite(step_variance=self.step_variance)
        if not self.least_noise_std >= max(MIN_RELATIVE_NOISE * self.radius, _LEAST_NOISE):
            raise PreconditionError(
                "noise_resolvable",
                f"Expected noise per step sqrt(2 step_size / cool_down) noise_scale = {self.least_noise_std:.3g}"
                f" >= {MIN_RELATIVE_NOISE:g} radius = {MIN_RELATIVE_NOISE * self.radius:.3g}: raise noise_scale",
            )
        if self.grid and not (math.frexp(self.grid)[0] == 0.5 and self.grid >= _FINEST_GRID * self.radius):
            raise PreconditionError(
                "grid_resolvable",
                f"Expected grid={self.grid} to be a power of two, >= 2^-51 radius = {_FINEST_GRID * self.radius:.3g}",
            )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: an accountant finds numbers by mechanism all the time."""
        return hash(tuple(getattr(self, name) for name in _SETTINGS))

    @cached_property
    def gradient_bound(self) -> float:
        """M: no record's loss gradient is longer, anywhere in the ball."""
        return gradient_bound(self.objective, self.num_classes, radius=self.radius, loss_width=self.loss_width)

    @property
    def is_tangent(self) -> bool:
        """It moves weights of its network, around those that it has."""
        return self.network is not None and self.network.linearisation is not None

    @property
    def strong_convexity(self) -> float:
        """m of the objective: the regulariser alone, whatever the data."""
        return self.l2

    @cached_property
    def smoothness(self) -> float:
        """L of the objective, which is attained."""
        return smoothness(
            self.objective,
            self.num_classes,
            self.l2,
            loss_width=self.loss_width,
            second_moment=self.second_moment,
        )

    @cached_property
    def contraction(self) -> float:
        """c: the noiseless step is c-Lipschitz, c = max(|1 - eta m|, |1 - eta L|), rounded up.

        For c < 1 the products are below 2 and each carries the rounding of at most two operations: 2^-51 in all.
        """
        exact = max(abs(1 - self.step_size * self.strong_convexity), abs(1 - self.step_size * self.smoothness))
        return exact + 2.0**-50

    @cached_property
    def slowest_contraction(self) -> float:
        """The largest c of any step: of the smallest, where the step size is not too large."""
        return max(self.contraction, 1 - self.step_size * self.strong_convexity / self.cool_down + 2.0**-50)

    @cached_property
    def step_variance(self) -> float:
        """nu^2 = 2 eta sigma^2: the noise added to each coordinate at each step."""
        return 2 * self.step_size * self.noise_scale * self.noise_scale

    @property
    def least_noise_std(self) -> float:
        """nu / sqrt(q): of the last step of a run, which has the least noise."""
        return math.sqrt(self.step_variance / self.cool_down)

    @property
    def num_batches(self) -> int:
        """B"""
        return self.num_slots // self.batch_size

    def steady(self, steps: int) -> int:
        """Number of steps at the full step size in a run of `steps` K >= 0: its first."""
        return max(steps - self.cool_down + 1, 0)

    def cooling(self, steps: int) -> int:
        """Number of steps of the cool-down; with r of them left, the next has r/q of the step size."""
        return steps - self.steady(steps)

    @cached_property
    def rounding_mu(self) -> float:
        """2 (g sqrt(d) / nu) sqrt((1 + c) / (1 - c)), the largest c and the least nu of any step: what rounding adds to
        every mu (`docs/mathematics/grid.md`)."""
        push = self.grid * math.sqrt(self.num_parameters)
        c = self.slowest_contraction
        return 2 * push / self.least_noise_std * math.sqrt((1 + c) / (1 - c))

    def sensitivity(self, adjacency: Adjacency) -> float:
        """s: how far one record can move one noiseless step at the full step size, in which its batch is read:
        eta M / b' (`zero_out`) or twice that (`replace`), b' >= b the slots of the smallest batch."""
        unit = self.step_size * self.gradient_bound / (self.num_slots // self.num_batches)
        match adjacency:
            case Adjacency.ZERO_OUT:
                return unit
            case Adjacency.REPLACE:
                return 2 * unit

    def to_json(self) -> dict[str, Any]:
        """The settings, and the constants that follow from them (which `from_json` recomputes and compares). A
        setting that is none is not stated."""
        settings = {name: getattr(self, name) for name in _SETTINGS if getattr(self, name) is not None}
        if self.network is not None:
            settings["network"] = self.network.to_json()
        if self.class_weights is not None:
            settings["class_weights"] = list(self.class_weights)
        return settings | {name: getattr(self, name) for name in _DERIVED}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Mechanism":
        """The mechanism of a stored document.

        Raises `PreconditionError` if it has other fields, as those of other releases have, or if a stated constant is
        not the one that follows from the settings.
        """
        stated = [*(name for name in _SETTINGS if name not in _OF_SOME or document.get(name) is not None), *_DERIVED]
        if document.keys() != set(stated):
            raise PreconditionError("mechanism_of_format", f"Expected a mechanism to state {', '.join(stated)}")
        read: dict[str, Any] = {}
        if "network" in document:
            read["network"] = PublicNetwork.from_json(document["network"])
        if "class_weights" in document:
            read["class_weights"] = tuple(document["class_weights"])
        return _stated(**document | read)


_SETTINGS = tuple(field.name for field in fields(Mechanism))
_OF_SOME = ("loss_width", "network", "second_moment", "class_weights", "weight_bound")
"""Settings that some mechanisms have, and documents of others do not state."""
_DERIVED = ("gradient_bound", "strong_convexity", "smoothness", "contraction", "step_variance", "num_batches")


@lru_cache(maxsize=256, typed=True)  # a ledger states the same mechanism in every entry
def _stated(**document: Any) -> Mechanism:
    settings = {name: document[name] for name in _SETTINGS if name in document}
    mechanism = Mechanism(**settings | {"objective": Objective(settings["objective"])})
    for name in (*_DERIVED, "batch_size"):  # of which 0 says nothing where it is stored
        if document[name] != getattr(mechanism, name):  # sums, products and a square root: the same everywhere
            raise PreconditionError(
                "constants_follow", f"Expected {name}={document[name]} == {getattr(mechanism, name)}"
            )
    return mechanism


def finest_grid(*, noise_std: float, radius: float) -> float:
    """The grid for noise of so much per step: 2^-32 of it, or as fine as float64 can be in the ball.

    >>> finest_grid(noise_std=1.0, radius=1.0) == 2.0**-32
    True
    """
    fine = math.ldexp(0.5, math.frexp(noise_std)[1] - 32)
    return max(fine, math.ldexp(1.0, math.frexp(radius)[1] - 51))
