"""Guarantees: numbers in a named notion, relative to a named reference process, and the evidence they follow from.

`Evidence` contains everything that the guarantees of one person and one model version depend on. Certificates include
it, so that anyone with a certificate can recompute the same numbers with the same function.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Self

from lethe.proof import accountant, budget, conversion, errors, methods
from lethe.proof.mechanism import Adjacency, Mechanism


class Notion(StrEnum):
    """Notion of a guarantee. Guarantees of different notions answer different questions and never compose."""

    UNLEARNING = "unlearning"
    DELETION = "deletion"
    ADAPTIVE = "adaptive"
    RELEASE = "release"
    RESET = "reset"


_INDEPENDENT = (
    "for requests and runs (which models, when, how many steps, learning again) that do not depend on published models"
)
REFERENCE_PROCESS: dict[Notion, str] = {
    Notion.UNLEARNING: "learning from scratch on the data as they are now: same schedule of steps, same initial law;"
    f" {_INDEPENDENT}",
    Notion.DELETION: "the same history in which the records of this request had been null from the start;"
    f" {_INDEPENDENT}",
    Notion.ADAPTIVE: "the same history in which the records of this request had been null from the start;"
    " also against people who read every version published so far, of every model that these records fed, and chose by"
    " it whom to delete, in a schedule of runs that was not chosen by it; the sum was taken afterwards",
    Notion.RESET: "the same steps on the same data from any other start in the ball, whatever happened before",
    Notion.RELEASE: "for one record still present: this version with another record in its place,"
    " given the version published before",
}


ADAPTIVE_IN_BUDGET = (
    "the same history in which the records of this request had been null from the start;"
    " also against people who read every version published so far, of every model that these records fed, and chose by"
    " it whom to delete and what to run: no version was published that exceeds the budget set in advance"
)
"""Reference process of `adaptive` when a budget bounds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """A mu-GDP guarantee in both directions and the (epsilon, delta) that it implies.

    epsilon, in nats, is the exact conversion of mu at delta, rounded up.
    """

    notion: Notion
    adjacency: Adjacency
    mu: float
    epsilon: float
    delta: float
    reference_process: str

    @property
    def best_attacker_accuracy(self) -> float:
        """Upper bound on the balanced accuracy of an attacker who guesses which of the two processes ran."""
        return conversion.gdp_balanced_accuracy(mu=self.mu)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as stored in the ledger."""
        return asdict(self)

    def stated(self) -> dict[str, Any]:
        """Return the fields as stated in certificates, including `best_attacker_accuracy`."""
        return self.to_json() | {"best_attacker_accuracy": self.best_attacker_accuracy}


TOLERANCE = 1e-9
"""Relative difference allowed between a stated and a recomputed number, because math libraries round differently."""


def confirm(part: str, *, stated: dict[str, Any], recomputed: dict[str, Any]) -> None:
    """Check that the stated fields of `part` equal the recomputed fields in value and type; floats may differ by
    `TOLERANCE`.

    Raises:
        PreconditionError: if the field names or a value differ; for a value, the message names its field.
    """
    if not isinstance(stated, dict) or stated.keys() != recomputed.keys():
        raise errors.PreconditionError("numbers_recompute", f"Expected the fields of {part} to be {sorted(recomputed)}")
    for name, value in recomputed.items():
        if not _equal(stated[name], value):
            raise errors.PreconditionError(
                "numbers_recompute", f"Expected {part}.{name}={stated[name]!r} to be {value!r}"
            )


def _equal(stated: Any, recomputed: Any) -> bool:
    if type(stated) is float and type(recomputed) is float:
        return math.isclose(stated, recomputed, rel_tol=TOLERANCE)
    if isinstance(stated, int | float) or isinstance(recomputed, int | float):
        return type(stated) is type(recomputed) and stated == recomputed
    return bool(stated == recomputed)


# Cached because a model that forgets people one after another repeats the same numbers.
@lru_cache(maxsize=4096, typed=True)
def guarantee(notion: Notion, *, mu: float, delta: float, process: str | None = None) -> Guarantee:
    """Return the guarantee that `mu` >= 0 gives under `notion`, with mu converted to epsilon at 0 < delta < 1.

    `process` replaces the notion's default reference process. The conversion is Corollary 2.13 of Dong, Roth and Su
    (2022).
    """
    return Guarantee(
        notion=notion,
        adjacency=Adjacency.REPLACE if notion is Notion.RELEASE else Adjacency.ZERO_OUT,
        mu=mu,
        epsilon=conversion.gdp_epsilon(mu=mu, delta=delta),
        delta=delta,
        reference_process=process or REFERENCE_PROCESS[notion],
    )


def adaptive(bound: budget.Adaptive, *, delta: float) -> Guarantee:
    """Return the guarantee against observers who read every version."""
    process = ADAPTIVE_IN_BUDGET if bound.bounded else None
    return _tightened(guarantee(Notion.ADAPTIVE, mu=bound.mu, delta=delta, process=process), bound.summed)


def _tightened(stated: Guarantee, exposures: Sequence[accountant.Exposure]) -> Guarantee:
    """Return the guarantee, replacing its epsilon with the one proved by the versions' method if that is smaller."""
    by_method = {methods.of(exposure.mechanism).name: methods.of(exposure.mechanism) for exposure in exposures}
    if len(by_method) != 1 or (epsilon := next(iter(by_method.values())).epsilon) is None:
        return stated
    return replace(stated, epsilon=min(stated.epsilon, epsilon(stated.notion, exposures, delta=stated.delta)))


def of_chain(chain: accountant.Chain, *, last_run: accountant.Run, delta: float) -> list[Guarantee]:
    """Return the guarantees that hold for all records in the version from `last_run`: `unlearning` and `release`."""
    method, released = methods.of(chain.mechanism), ((last_run.steps, 1),)
    release = guarantee(Notion.RELEASE, mu=method.release_mu(chain.mechanism, steps=last_run.steps), delta=delta)
    return [
        guarantee(Notion.UNLEARNING, mu=method.unlearning_mu(chain), delta=delta),
        _tightened(release, [accountant.Exposure(mechanism=chain.mechanism, records=1, releases=released)]),
    ]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence of one person's deletion from one model version.

    Attributes:
        mechanism: Mechanism of the model.
        history: The chain's runs so far, oldest first. They start with the learning run unless `accountant.compact`
            dropped it and the other runs that made up the first `steps_before` steps.
        records: Number of the person's records, >= 1.
        steps_present: Number of steps that the chain took before the records became null; 0 if null from the start.
        exposures: For each model trained on the records, keyed by id, the versions published while they were present.
        budgets: Budgets of the person's datasets, keyed by dataset id; datasets without a budget are absent.
        steps_before: Number of steps dropped from the history.
        delta: Delta at which guarantees are converted to epsilon.

    Raises:
        PreconditionError: if the history is empty or contains no run that forgot the records.
        DomainError: if a count is out of range.
    """

    mechanism: Mechanism
    history: tuple[accountant.Run, ...]
    records: int
    steps_present: int
    exposures: dict[str, accountant.Exposure]
    budgets: dict[str, budget.Budgeted] = field(default_factory=dict)
    steps_before: int = 0
    delta: float

    def __post_init__(self) -> None:
        if not self.history:
            raise errors.PreconditionError("history_complete", "Expected the learning run to open the history")
        errors.require_count(1, records=self.records)
        errors.require_count(0, steps_present=self.steps_present, steps_before=self.steps_before)
        if self.steps_present <= self.steps_before and (self.steps_before or not self.steps_present):
            return
        steps = self.steps_before
        for run in self.history:
            if steps == self.steps_present and run.records >= self.records:
                return
            steps += run.steps
        raise errors.PreconditionError(
            "deletion_in_history",
            f"Expected a run after {self.steps_present} steps that deleted at least {self.records} records",
        )

    @cached_property
    def chain(self) -> accountant.Chain:
        """State of the chain after `history`."""
        return methods.replay(self.mechanism, self.history, steps_before=self.steps_before)

    def guarantees(self) -> list[Guarantee]:
        """Return the guarantees at `delta`: `unlearning`, `deletion`, `adaptive` and `release`, in this order."""
        return self._guarantees

    @cached_property
    def _guarantees(self) -> list[Guarantee]:
        method = methods.of(self.mechanism)
        deletion_mu = method.deletion_mu(self.chain, records=self.records, steps_present=self.steps_present)
        unlearning, release = of_chain(self.chain, last_run=self.history[-1], delta=self.delta)
        return [
            unlearning,
            guarantee(Notion.DELETION, mu=deletion_mu, delta=self.delta),
            adaptive(budget.adaptive(self.exposures, self.budgets), delta=self.delta),
            release,
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as stated in certificates."""
        return {
            "mechanism": self.mechanism.to_json(),
            "steps_before": self.steps_before,
            "history": [[run.steps, run.records] for run in self.history],
            "records": self.records,
            "steps_present": self.steps_present,
            "steps_since": self.chain.steps - self.steps_present,
            "exposures": {
                model_id: {
                    "mechanism": exposure.mechanism.to_json(),
                    "records": exposure.records,
                    "releases": [list(pair) for pair in exposure.releases],
                    "stretches": exposure.stretches,
                }
                for model_id, exposure in sorted(self.exposures.items())
            },
            "budgets": {dataset_id: budgeted.to_json() for dataset_id, budgeted in sorted(self.budgets.items())},
            "delta": self.delta,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Parse the result of `to_json`.

        Raises:
            LookupError: if a field is missing.
            TypeError, ValueError: if a field has the wrong type or form.
            PrivacyError: if a value is out of range or the parts contradict each other.
        """
        return cls(
            mechanism=methods.read(document["mechanism"]),
            steps_before=document["steps_before"],
            history=tuple(accountant.Run(steps=steps, records=records) for steps, records in document["history"]),
            records=document["records"],
            steps_present=document["steps_present"],
            exposures={
                model_id: accountant.Exposure(
                    mechanism=methods.read(exposure["mechanism"]),
                    records=exposure["records"],
                    releases=tuple((steps, count) for steps, count in exposure["releases"]),
                    stretches=exposure["stretches"],
                )
                for model_id, exposure in document["exposures"].items()
            },
            budgets={
                dataset_id: budget.Budgeted.from_json(budgeted) for dataset_id, budgeted in document["budgets"].items()
            },
            delta=document["delta"],
        )
