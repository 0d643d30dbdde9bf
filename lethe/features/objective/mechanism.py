"""Mechanism of a model trained by objective perturbation: the settings that its guarantees depend on."""

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

from lethe.proof import errors, losses
from lethe.proof.rounding import ROUNDING, up

MAX_ITERATIONS = 1000
"""Largest permitted limit on the solver's iterations."""
FRACTION_OF_NOISE = 2.0**-32
"""Grid spacing relative to the noise's standard deviation, before rounding down to a power of two."""


# It has no slots because its cached properties need an instance dictionary.
@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation:
    """Mechanism whose versions are theta + N(0, output_noise^2 I), where theta minimises, up to the solver's tolerance,

        sum_i loss_i(theta) + (num_slots l2 / 2) |theta|^2 + <xi, theta>,    xi ~ N(0, noise_scale^2 I),

    with new xi and new output noise for every version.

    Attributes:
        objective: `logistic_regression` or `multilabel_logistic_regression`; the proof covers no other loss.
        num_slots: Number of slots n0 >= 1, public and fixed for the dataset. Deleting writes a null record to a slot.
        num_classes: Number C >= 2 of classes or labels.
        num_columns: Number d >= 1 of columns per row, including the bias. Rows have norm <= 1.
        l2: Regularisation > 0 per slot; every parameter is regularised with Lambda = num_slots * l2.
        noise_scale: Standard deviation sigma > 0 of each coordinate of xi.
        tolerance: Largest gradient norm > 0 of the objective above, a sum over rows, at which the solver may stop. It
            includes the rounding of the gradient and of xi to its grid.
        output_noise: Standard deviation tau > 0 of the noise added to each coordinate of the minimiser.
        max_iterations: Cap on the solver's iterations. A result that has not reached `tolerance` by then is refused.
        class_weights: Public loss factors in (0, 1] per class, the largest being 1; None if all are 1.
        weight_bound: W > 0. A row's loss is scaled by its own weight / W, in [0, 1]; None if all rows have weight 1.

    Raises:
        DomainError: if a number is out of range.
        PreconditionError: `loss_proved` for a loss that the proof does not cover.
    """

    objective: losses.Objective
    num_slots: int
    num_classes: int
    num_columns: int
    l2: float
    noise_scale: float
    tolerance: float
    output_noise: float
    max_iterations: int = 300
    class_weights: tuple[float, ...] | None = None
    weight_bound: float | None = None

    def __post_init__(self) -> None:
        require_proved(self.objective)
        errors.require_count(
            1, num_slots=self.num_slots, num_columns=self.num_columns, max_iterations=self.max_iterations
        )
        losses.require_loss(self.objective, self.num_classes, None)
        errors.require_positive(
            l2=self.l2, noise_scale=self.noise_scale, tolerance=self.tolerance, output_noise=self.output_noise
        )
        if self.max_iterations > MAX_ITERATIONS:
            raise errors.DomainError(f"Expected max_iterations={self.max_iterations} <= {MAX_ITERATIONS}")
        if self.class_weights is not None:
            losses.require_class_weights(self.objective, self.num_classes, self.class_weights)
        if self.weight_bound is not None:
            errors.require_positive(weight_bound=self.weight_bound)
        if not 1e-6 <= self.mu_of_distance(1.0) <= 1e3:
            raise errors.DomainError(f"Expected noise_scale={self.noise_scale} in [1e-3, 1e6]")
        if not 1e-6 <= self.regularisation <= 1e12:
            raise errors.DomainError(f"Expected num_slots l2 = {self.regularisation} in [1e-6, 1e12]")
        if not (self.solver_mu <= 0.1 and self.gradient_tolerance > 0):
            raise errors.PreconditionError(
                "solver_resolvable",
                f"Expected the solver's error, mu = {self.solver_mu:.3g} of a version, <= 0.1, and a tolerance"
                " above the rounding of the noise: choose another tolerance or raise output_noise",
            )

    @cached_property
    def regularisation(self) -> float:
        """Strong convexity Lambda = num_slots * l2 of the objective, a sum over rows, rounded down."""
        return math.nextafter(self.num_slots * self.l2, 0.0)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the parameters: (1, d) for two classes, (C, d) for more classes or for labels."""
        return losses.num_weight_rows(self.num_classes, self.objective), self.num_columns

    @property
    def num_parameters(self) -> int:
        """Number of model parameters."""
        return math.prod(self.shape)

    @property
    def num_parts(self) -> int:
        """Number of independent models that make up a version: one per label for multi-label models, otherwise 1."""
        return self.num_classes if self.objective is losses.Objective.MULTILABEL_LOGISTIC_REGRESSION else 1

    @property
    def num_scores(self) -> int:
        """Number of scores that a record's loss depends on within one part: 1, or C for softmax."""
        return 1 if self.num_parts > 1 else self.shape[0]

    @property
    def noise_grid(self) -> float:
        """Power of two to whose multiples xi is rounded."""
        return _grid_of(self.noise_scale)

    @property
    def grid(self) -> float:
        """Power of two to whose multiples the minimiser and the version are rounded."""
        return _grid_of(self.output_noise)

    @property
    def gradient_tolerance(self) -> float:
        """Largest gradient norm, including its rounding, at which the solver may stop: `tolerance` less the rounding of
        xi, rounded down."""
        rounding = up(self.noise_grid * math.sqrt(self.num_parameters) / 2)
        return max(self.tolerance * (1 - ROUNDING) - rounding, 0.0)

    @cached_property
    def solver_mu(self) -> float:
        """The mu between a version and the exact minimiser plus exact noise, conditional on the exact minimiser.

        The solver ends within tolerance / Lambda of the minimiser, and rounding to the grid adds at most grid
        sqrt(num_parameters) / 2. Their sum is divided by `output_noise`.
        """
        distance = up(self.tolerance / self.regularisation) + up(self.grid * math.sqrt(self.num_parameters) / 2)
        return up(up(distance) / self.output_noise)

    def mu_of_distance(self, distance: float) -> float:
        """Return the mu, rounded up, of two Gaussians of standard deviation noise_scale with means `distance` apart."""
        return up(distance / self.noise_scale)

    def to_json(self) -> dict[str, Any]:
        """Return the settings that are not None."""
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        settings |= {name: float(settings[name]) for name in _FLOATS if settings[name] is not None}
        if self.class_weights is not None:
            settings["class_weights"] = [float(weight) for weight in self.class_weights]
        return {name: value for name, value in settings.items() if value is not None}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Parse the result of `to_json`.

        Raises:
            PreconditionError: if fields are missing or unknown, or a real number is given as an integer.
            PrivacyError: if a value is out of range.
        """
        names = {field.name for field in fields(cls)}
        stated = names - {name for name in _OPTIONAL if document.get(name) is None}
        if document.keys() != stated:
            raise errors.PreconditionError(
                "mechanism_of_format", f"Expected a mechanism to state {', '.join(sorted(stated))}"
            )
        for name in (*_FLOATS, "class_weights"):
            value = document.get(name, 0.0)
            if not all(type(real) is float for real in (value if isinstance(value, list) else [value])):
                raise errors.PreconditionError("mechanism_of_format", f"Expected {name}={value!r} to be a float")
        if document["objective"] not in set(losses.Objective):
            raise errors.PreconditionError(
                "mechanism_of_format", f"Expected a known objective, not {document['objective']!r}"
            )
        read: dict[str, Any] = {"objective": losses.Objective(document["objective"])}
        if "class_weights" in document:
            read["class_weights"] = tuple(document["class_weights"])
        return cls(**document | read)


_FLOATS = ("l2", "noise_scale", "tolerance", "output_noise", "weight_bound")
_OPTIONAL = ("class_weights", "weight_bound")


def require_proved(objective: losses.Objective) -> None:
    """Check that the proof covers the loss: its slope must stay in a known polytope, and its curvature must be bounded.

    Raises:
        PreconditionError: `loss_proved` for losses that are not logistic.
    """
    if not objective.is_logistic:
        raise errors.PreconditionError(
            "loss_proved",
            f"Expected a logistic loss: objective perturbation is not proved for {objective};"
            " choose logistic_regression or multilabel_logistic_regression",
        )


def _grid_of(noise: float) -> float:
    return math.ldexp(0.5, math.frexp(noise * FRACTION_OF_NOISE)[1])
