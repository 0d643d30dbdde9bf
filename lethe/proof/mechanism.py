"""Mechanism of a model: every training setting that the guarantee depends on, frozen at creation.

The engine runs a `Mechanism` and the accountant proves its guarantee; both read the same constants and neither
recomputes them. A mechanism contains only public facts: objective, sizes and settings, never a statistic of the data.
"""

import math
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from lethe.proof import errors, losses
from lethe.proof.network import PublicNetwork


class Adjacency(StrEnum):
    """Meaning of "without this record"."""

    ZERO_OUT = "zero_out"
    """Compare the record with the null record, which has zero features and contributes no gradient."""
    REPLACE = "replace"
    """Compare the record with any other admissible record."""


MIN_RELATIVE_NOISE = 1e-12
"""Minimum noise per step relative to the radius. Below it, float64 parameters cannot represent the certified noise."""
# Below this the variance underflows.
_MIN_NOISE = 1e-150
MAX_COOL_DOWN = 1024
# Relative to the radius: float64 holds every multiple of it in a ball of radius 4 R.
_FINEST_GRID = 2.0**-51


# Mechanism has no slots because its cached properties need an instance dictionary.
@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Projected noisy gradient descent in cyclic batches, x <- Proj_R(x - eta grad f_t(x) + N(0, 2 eta sigma^2 I)).

    Step t, counted over all runs of a chain, reads batch t mod B of B = floor(num_slots / batch_size) batches. Batches
    are ranges of slots of nearly equal size, never smaller than `batch_size`. In the last `cool_down` steps of each run
    eta decreases linearly to eta / cool_down; a shorter run takes only the last of these steps.

    Attributes:
        num_slots: Number of slots n0 >= 1, public and fixed per dataset. A deletion writes a null record to a slot.
        num_classes: C >= 2 (2 for the hinge, 1 for a regression); at most `MAX_LABELS` labels.
        l2: Regularisation > 0. Every parameter is regularised.
        step_size, noise_scale, radius: eta > 0, sigma > 0, and radius R > 0 of the ball around the origin.
        learn_steps, cool_down: Steps T of the learning run and q of the cool-down, 1 <= q <= T.
        grid: Power of two g. Before the projection, any step may round its mean and its noisy result to multiples of g
            in each of `num_parameters` d >= 1 coordinates; 0 for no rounding.
        batch_size: b, at least 1 and at most num_slots; 0 for all slots.
        loss_width: Width > 0 of the Huber, hinge or Poisson loss; None for other losses.
        network: Public network that encodes the rows or whose tangent is trained; None if rows are used as sent.
        second_moment: Public bound Lambda in (0, 1] on the largest eigenvalue of (1/b) sum x x^T over each batch,
            checked during learning (`second-moment.md`); None for 1, which rows of norm <= 1 always meet.
        class_weights: Public loss factor v_c in (0, 1] of each class, the largest being 1; None if all are 1.
        weight_bound: W > 0. A row's loss is scaled by the row's weight / W, in [0, 1], which is stored and erased with
            the row; None if all rows have weight 1.

    Rows have norm <= 1, checked at ingestion and before each run. Raises `DomainError` for a number out of range, and
    `PreconditionError` if the contraction is not below 1 or the noise is unusable.
    """

    method: ClassVar[str] = "langevin"

    objective: losses.Objective
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
        errors.require_count(
            1, num_slots=self.num_slots, learn_steps=self.learn_steps, num_parameters=self.num_parameters
        )
        losses.require_loss(self.objective, self.num_classes, self.loss_width)
        if self.is_tangent and not (self.objective.is_logistic and self.second_moment is None):
            raise errors.DomainError(f"Expected no linearisation for {self.objective}, nor with a second_moment")
        errors.require_positive(l2=self.l2, step_size=self.step_size, noise_scale=self.noise_scale, radius=self.radius)
        errors.require_nonnegative(grid=self.grid)
        if self.batch_size == 0 and type(self.batch_size) is int:
            object.__setattr__(self, "batch_size", self.num_slots)
        errors.require_count(1, batch_size=self.batch_size, cool_down=self.cool_down)
        if self.batch_size > self.num_slots:
            raise errors.DomainError(f"Expected batch_size={self.batch_size} <= num_slots={self.num_slots}")
        if self.cool_down > min(self.learn_steps, MAX_COOL_DOWN):
            raise errors.DomainError(
                f"Expected cool_down={self.cool_down} <= learn_steps={self.learn_steps} and <= {MAX_COOL_DOWN}"
            )
        if self.second_moment is not None:
            losses.require_second_moment(self.second_moment)
            if self.learn_steps < self.num_batches:
                raise errors.PreconditionError(
                    "every_batch_checked",
                    f"Expected learn_steps={self.learn_steps} >= {self.num_batches} batches: learning checks them all",
                )
        if self.class_weights is not None:
            losses.require_class_weights(self.objective, self.num_classes, self.class_weights)
        if self.weight_bound is not None:
            errors.require_positive(weight_bound=self.weight_bound)
        if not self.slowest_contraction < 1:
            raise errors.PreconditionError(
                "contraction_below_one",
                f"Expected contraction={self.slowest_contraction:.17g} < 1:"
                f" choose step_size < 2/L = {2 / self.smoothness:.6g}",
            )
        errors.require_finite(step_variance=self.step_variance)
        if not self.least_noise_std >= max(MIN_RELATIVE_NOISE * self.radius, _MIN_NOISE):
            raise errors.PreconditionError(
                "noise_resolvable",
                f"Expected noise per step sqrt(2 step_size / cool_down) noise_scale = {self.least_noise_std:.3g}"
                f" >= {MIN_RELATIVE_NOISE:g} radius = {MIN_RELATIVE_NOISE * self.radius:.3g}: raise noise_scale",
            )
        if self.grid and not (math.frexp(self.grid)[0] == 0.5 and self.grid >= _FINEST_GRID * self.radius):
            raise errors.PreconditionError(
                "grid_resolvable",
                f"Expected grid={self.grid} to be a power of two, >= 2^-51 radius = {_FINEST_GRID * self.radius:.3g}",
            )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Hash of the settings, computed only once because the accountant's caches are keyed by mechanism."""
        return hash(tuple(getattr(self, name) for name in _SETTINGS))

    @cached_property
    def gradient_bound(self) -> float:
        """Bound M on the norm of any record's loss gradient at any point of the ball."""
        return losses.gradient_bound(self.objective, self.num_classes, radius=self.radius, loss_width=self.loss_width)

    @property
    def is_tangent(self) -> bool:
        """True if training changes the network's own weights."""
        return self.network is not None and self.network.linearisation is not None

    @property
    def strong_convexity(self) -> float:
        """Strong convexity m of the objective, which comes from the regulariser alone."""
        return self.l2

    @cached_property
    def smoothness(self) -> float:
        """Smoothness L of the objective. The bound is tight: some datasets attain it."""
        return losses.smoothness(
            self.objective, self.num_classes, self.l2, loss_width=self.loss_width, second_moment=self.second_moment
        )

    @cached_property
    def contraction(self) -> float:
        """Lipschitz constant c = max(|1 - eta m|, |1 - eta L|) of the noiseless step, rounded up.

        For c < 1, the products are below 2, and each is rounded at most twice: 2^-51 in total.
        """
        exact = max(abs(1 - self.step_size * self.strong_convexity), abs(1 - self.step_size * self.smoothness))
        return exact + 2.0**-50

    @cached_property
    def slowest_contraction(self) -> float:
        """Largest c of any step. Unless eta is too large, this is the c of the smallest step."""
        return max(self.contraction, 1 - self.step_size * self.strong_convexity / self.cool_down + 2.0**-50)

    @cached_property
    def step_variance(self) -> float:
        """Variance nu^2 = 2 eta sigma^2 of the noise added to each coordinate per step."""
        return 2 * self.step_size * self.noise_scale * self.noise_scale

    @property
    def least_noise_std(self) -> float:
        """Smallest noise standard deviation of any step: nu / sqrt(q), in the last step of a run."""
        return math.sqrt(self.step_variance / self.cool_down)

    @property
    def num_batches(self) -> int:
        """Number B of batches."""
        return self.num_slots // self.batch_size

    def on_null_rows(self) -> "Mechanism":
        """Return a mechanism that takes the same steps with one parameter, on one null row per batch."""
        alone = replace(self, num_slots=self.num_batches, batch_size=1, num_parameters=1, network=None)
        return replace(alone, num_classes=min(2, self.num_classes), class_weights=None, weight_bound=None)

    def steady(self, steps: int) -> int:
        """Return the number of initial steps at the full step size in a run of `steps` K >= 0."""
        return max(steps - self.cool_down + 1, 0)

    def cooling(self, steps: int) -> int:
        """Return the number of cool-down steps. When r of them remain, the next uses r/q of the step size."""
        return steps - self.steady(steps)

    @cached_property
    def rounding_mu(self) -> float:
        """Amount that rounding adds to every mu: 2 (g sqrt(d) / nu) sqrt((1 + c) / (1 - c)) with the largest c and the
        smallest nu of any step (`docs/mathematics/grid.md`)."""
        push = self.grid * math.sqrt(self.num_parameters)
        c = self.slowest_contraction
        return 2 * push / self.least_noise_std * math.sqrt((1 + c) / (1 - c))

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Return s, the maximum distance by which a record moves a noiseless full-size step that reads its batch. For
        `zero_out`, s is eta M / b', where b' >= b is the smallest batch's size; for `replace`, twice that."""
        unit = self.step_size * self.gradient_bound / (self.num_slots // self.num_batches)
        match adjacency:
            case Adjacency.ZERO_OUT:
                return unit
            case Adjacency.REPLACE:
                return 2 * unit

    def to_json(self) -> dict[str, Any]:
        """Return the settings that are not None and the derived constants, which `from_json` recomputes and checks."""
        settings = {name: getattr(self, name) for name in _SETTINGS if getattr(self, name) is not None}
        settings |= {name: float(settings[name]) for name in _FLOATS if name in settings}
        if self.network is not None:
            settings["network"] = self.network.to_json()
        if self.class_weights is not None:
            settings["class_weights"] = [float(weight) for weight in self.class_weights]
        derived = {name: float(getattr(self, name)) for name in _DERIVED_FLOATS}
        return settings | derived | {"num_batches": self.num_batches}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Mechanism":
        """Parse a stored document.

        Raises `PreconditionError` if the document's fields are not those of this release, if a real number is stated as
        an integer, or if a stated constant does not follow from the settings.
        """
        names = [*(name for name in _SETTINGS if name not in _OF_SOME or document.get(name) is not None), *_DERIVED]
        if document.keys() != set(names):
            raise errors.PreconditionError("mechanism_of_format", f"Expected a mechanism to state {', '.join(names)}")
        for name in (*_FLOATS, *_DERIVED_FLOATS, "class_weights"):
            stated = document.get(name, 0.0)
            if not all(type(real) is float for real in (stated if isinstance(stated, list) else [stated])):
                raise errors.PreconditionError("mechanism_of_format", f"Expected {name}={stated!r} to be a float")
        read: dict[str, Any] = {}
        if "network" in document:
            read["network"] = PublicNetwork.from_json(document["network"])
        if "class_weights" in document:
            read["class_weights"] = tuple(document["class_weights"])
        return _stated(**document | read)


_SETTINGS = tuple(field.name for field in fields(Mechanism))
_OF_SOME = ("loss_width", "network", "second_moment", "class_weights", "weight_bound")
"""Optional settings, omitted from a document if they are None."""
_FLOATS = ("l2", "step_size", "noise_scale", "radius", "grid", "loss_width", "second_moment", "weight_bound")
_DERIVED_FLOATS = ("gradient_bound", "strong_convexity", "smoothness", "contraction", "step_variance")
_DERIVED = (*_DERIVED_FLOATS, "num_batches")


# Cached because a ledger repeats the same mechanism in every entry.
@lru_cache(maxsize=256, typed=True)
def _stated(**document: Any) -> Mechanism:
    settings = {name: document[name] for name in _SETTINGS if name in document}
    mechanism = Mechanism(**settings | {"objective": losses.Objective(settings["objective"])})
    # A stored batch_size of 0 is refused: it does not name the batches.
    for name in (*_DERIVED, "batch_size"):
        # Sums, products and a square root have the same result on every machine.
        if document[name] != getattr(mechanism, name):
            raise errors.PreconditionError(
                "constants_follow", f"Expected {name}={document[name]} == {getattr(mechanism, name)}"
            )
    return mechanism


def finest_grid(*, noise_std: float, radius: float) -> float:
    """Return the grid: the largest power of two <= 2^-32 `noise_std`, or float64's resolution in the ball if coarser.

    >>> finest_grid(noise_std=1.0, radius=1.0) == 2.0**-32
    True
    """
    fine = math.ldexp(0.5, math.frexp(noise_std)[1] - 32)
    return max(fine, math.ldexp(1.0, math.frexp(radius)[1] - 51))
