"""Objective perturbation as a method: its mechanism, its guarantees, and the texts of its certificates."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from lethe.features.objective import accountant, calibration
from lethe.features.objective.mechanism import ObjectivePerturbation, require_proved
from lethe.proof import canary_test, certificate, errors, guarantees, lookback, losses, methods
from lethe.proof.accountant import Chain, Run
from lethe.proof.calibration import ModelSettings
from lethe.proof.mechanism import Adjacency
from lethe.proof.network import PublicNetwork

NAME = "objective_perturbation"
THEOREM = "objective-perturbation/1"
"""Identifier of the bound in certificates: Theorems 3 and 4 of `docs/mathematics/objective-perturbation.md`."""

_NOT_TAKEN = (
    "loss_width",
    "noise_scale",
    "step_size",
    "radius",
    "learn_steps",
    "batch_size",
    "cool_down",
    "second_moment",
)
"""Model settings that this method does not support."""


class Perturbed(ObjectivePerturbation):
    """Mechanism of a model trained by this method, with the attributes that the core expects of mechanisms.

    A run has `learn_steps` steps: the cap on its solver's iterations, each of which can read all rows. The actual
    number of iterations depends on the rows and is not disclosed outside the run's process.
    """

    method: ClassVar[str] = NAME
    num_batches: ClassVar[int] = 1
    cool_down: ClassVar[int] = 1
    is_tangent: ClassVar[bool] = False
    network: ClassVar[None] = None
    loss_width: ClassVar[None] = None
    second_moment: ClassVar[None] = None

    @property
    def learn_steps(self) -> int:
        """Number of steps that each run is planned and accounted for with: the cap on iterations."""
        return self.max_iterations

    @property
    def batch_size(self) -> int:
        """Number of slots that a step reads: all slots."""
        return self.num_slots

    def on_null_rows(self) -> "Perturbed":
        """Return a mechanism with the same noise and Lambda for one null row with one column."""
        alone = replace(self, num_slots=1, l2=self.num_slots * self.l2, num_columns=1, num_classes=2)
        return replace(alone, class_weights=None, weight_bound=None)

    def to_json(self) -> dict[str, Any]:
        """Return the settings that are not None, and the name of the method."""
        return super().to_json() | {"method": NAME}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Parse the result of `to_json`. Raises `PrivacyError`."""
        return super().from_json({name: value for name, value in document.items() if name != "method"})


@dataclass(frozen=True, kw_only=True)
class Versions(Chain):
    """State of a model: the version produced by its last run, which depends only on the rows present and fresh noise.

    Influences are scaled such that influence / sqrt(variance), with the variance of the output noise, is a mu.
    """

    @cached_property
    def present(self) -> lookback.Lookback:
        """Influence of one record that is present."""
        if not self.steps:
            return lookback.NOTHING
        width = self.mechanism.output_noise * accountant.mu(self.mechanism)  # type: ignore[attr-defined, arg-type]
        return lookback.Lookback((0.0,), (width,))

    @cached_property
    def variance(self) -> float:
        """Variance of the output noise."""
        return float(self.mechanism.output_noise**2) if self.steps else 0.0  # type: ignore[attr-defined]


def calibrate(
    settings: ModelSettings,
    *,
    num_slots: int,
    num_classes: int,
    objective: losses.Objective,
    num_parameters: int,
    class_weights: tuple[float, ...] | None = None,
    weight_bound: float | None = None,
    network: PublicNetwork | None = None,
) -> Perturbed:
    """Return the mechanism with the least noise for which the `adaptive` guarantee for one record is (epsilon, delta)
    after the first version. `deletion` is 0 for any target.

    Raises:
        PreconditionError: for a loss that is not proved, a network, or a setting that this method does not have.
        InfeasibleError: if no amount of noise reaches the target.
    """
    require_proved(objective)
    for name in _NOT_TAKEN:
        if getattr(settings, name) is not None:
            raise errors.PreconditionError("setting_of_method", f"Expected no {name}: {NAME} does not have it")
    if network is not None:
        raise errors.PreconditionError(
            "setting_of_method", f"Expected no network: {NAME} is not proved for models on one"
        )
    chosen = calibration.choose(
        num_slots=num_slots,
        num_columns=num_parameters // losses.num_weight_rows(num_classes, objective),
        num_classes=num_classes,
        epsilon=settings.epsilon,
        delta=settings.delta,
        objective=objective,
        regularisation=None if settings.l2 is None else num_slots * settings.l2,
        class_weights=class_weights,
        weight_bound=weight_bound,
    )
    return Perturbed(**{field.name: getattr(chosen, field.name) for field in fields(ObjectivePerturbation)})


def started(mechanism: Any) -> Chain:
    """Return the state before the first version."""
    return Versions(mechanism=mechanism)


def advance(chain: Chain, run: Run) -> Chain:
    """Return the state after a run. Its version does not depend on any earlier version.

    Raises:
        PreconditionError: if the run continues another run, or its number of steps is not the mechanism's cap.
    """
    if chain.steps or run.steps != chain.mechanism.learn_steps:
        raise errors.PreconditionError("learned_anew", f"Expected each version by {NAME} to be learned from scratch")
    return Versions(mechanism=chain.mechanism, steps=run.steps, runs=((chain.mechanism, run.steps),))


def _unlearning_mu(chain: Any, *, records: int = 0) -> float:
    """Return the mu relative to training on the current data, covering records nulled since the last version."""
    present = chain.edits + records
    return accountant.mu(chain.mechanism, records=present) if present else accountant.deletion_mu(chain.mechanism)


def _deletion_mu(chain: Any, *, records: int, steps_present: int, steps_absent: int = 0) -> float:
    """Return the mu relative to the same history without the records, which only versions trained on them reveal."""
    is_present = steps_present > 0 and steps_absent < chain.steps and records > 0
    return accountant.mu(chain.mechanism, records=records) if is_present else accountant.deletion_mu(chain.mechanism)


def _law(mechanism: Any, plan: canary_test.CanaryPlan, records: int | None) -> canary_test.Law:
    """Return the law of the lanes: coordinates of the minimiser with noise, where a canary is `records` records whose
    loss is linear with the largest slope (Theorem 5). Every run starts them at the origin, even to forget canaries."""
    strength, origin, groups = mechanism.regularisation, np.zeros(plan.lanes // 2), plan.groups
    slope = math.sqrt(mechanism.num_parts * (2 if mechanism.num_scores > 1 else 1))
    spread = math.hypot(mechanism.noise_scale / strength, mechanism.output_noise)
    # The certified mu is above the true one, and is to be refutable by a few hundred lanes.
    records = records or max(1, math.floor(canary_test.APART / accountant.mu(mechanism)))
    return canary_test.Law(
        records=records,
        place=origin.astype(int),
        start=origin,
        start_variance=0.0,
        push=-records * slope,
        mean=origin if plan.steps_before else origin + records * slope / strength,
        decay=0.0,
        unforeseen=spread**2,
        variance=spread**2,
        witnesses=np.zeros((1, groups)),
        witnessed=np.zeros(groups),
    )


def _squares(exposure: Any) -> Iterator[float]:
    versions = sum(count for _, count in exposure.releases)
    if versions:
        yield versions * accountant.mu(exposure.mechanism, records=exposure.records) ** 2


# Cached because a certificate and every answer about a model repeat the question, and a convolution takes a while.
@lru_cache(maxsize=4096)
def _epsilon_of(notion: guarantees.Notion, exposures: tuple[Any, ...], delta: float) -> float:
    if notion is guarantees.Notion.RELEASE:
        return max(accountant.epsilon(part.mechanism, delta=delta, adjacency=Adjacency.REPLACE) for part in exposures)
    published = [
        accountant.Releases(
            mechanism=part.mechanism, versions=sum(count for _, count in part.releases), records=part.records
        )
        for part in exposures
    ]
    return accountant.adaptive_epsilon(published, delta=delta)


_SHARED_INVARIANTS = (
    "rows_null_read_back",
    "row_norms_at_most_one",
    "mechanism_as_frozen",
    "fresh_system_noise",
    "row_weights_in_range",
    "records_counted",
    "one_run_per_dataset",
)

METHOD = methods.Method(
    name=NAME,
    theorem=THEOREM,
    continues=False,
    invariants={name: certificate.INVARIANTS[name] for name in _SHARED_INVARIANTS}
    | {
        "started_at_the_origin": "the solver started at the origin, was given no earlier version, and drew a new"
        " perturbation and a new output noise",
        "gradient_within_tolerance": "the norm of the gradient at the end, with a bound of its rounding, was computed"
        " by other code than the solver's and was within the tolerance of the mechanism",
        "iterations_not_released": "neither the number of iterations nor the perturbation nor the minimiser without"
        " noise left the process of the run; the number of steps on record is the cap",
        "noisy_minimiser_only": "only the minimiser with its output noise left the worker; the state of runs that"
        " died was discarded",
    },
    limits=[
        "The time that a run takes depends on the rows through the iterations of its solver, and whether it was refused"
        " because the solver did not reach its tolerance depends on them too; no guarantee covers what either"
        " reveals.",
        *certificate.COMMON_LIMITS,
    ],
    calibrate=calibrate,
    read=Perturbed.from_json,
    started=started,
    advance=advance,
    recent=lambda mechanism, newest_first: [run for _, run in list(newest_first)[:1]],
    unlearning_mu=_unlearning_mu,
    deletion_mu=_deletion_mu,
    law=_law,
    release_mu=lambda mechanism, *, steps: accountant.mu(mechanism, adjacency=Adjacency.REPLACE),
    squares=_squares,
    epsilon=lambda notion, exposures, *, delta: _epsilon_of(notion, tuple(exposures), delta),
)
METHODS = (METHOD,)
