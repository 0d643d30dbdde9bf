"""The claim: a number, in a named notion, against a named reference process.

`Evidence` is everything those numbers depend on for one person and one model version. The certificate carries it, so
the holder of a certificate recomputes the same numbers with the same function.
"""

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Self

from lethe.proof import accountant, budget, conversion
from lethe.proof.accountant import Chain, Exposure, Run
from lethe.proof.budget import Adaptive, Budgeted
from lethe.proof.errors import PreconditionError, require_count
from lethe.proof.mechanism import Adjacency, Mechanism


class Notion(StrEnum):
    """Guarantees of different notions answer different questions; they are never added."""

    UNLEARNING = "unlearning"
    DELETION = "deletion"
    ADAPTIVE = "adaptive"
    RELEASE = "release"
    RESET = "reset"


REFERENCE_PROCESS: dict[Notion, str] = {
    Notion.UNLEARNING: "learning from scratch on the data as they are now: same number of steps, same initial law;"
    " for requests that do not depend on published models",
    Notion.DELETION: "the same history in which the records of this request had been null from the start;"
    " for requests that do not depend on published models",
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
"""The process of `adaptive` where a budget bounds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """mu-GDP in both directions, and the (epsilon, delta) it implies exactly; epsilon is rounded up."""

    notion: Notion
    adjacency: Adjacency
    mu: float
    epsilon: float
    delta: float
    reference_process: str

    @property
    def best_attacker_accuracy(self) -> float:
        """An upper bound on how often an attacker is right about which of the two worlds they see."""
        return conversion.gdp_balanced_accuracy(mu=self.mu)

    def to_json(self) -> dict[str, Any]:
        """As the ledger has it."""
        return asdict(self)

    def stated(self) -> dict[str, Any]:
        """As certificates and their readers have it."""
        return self.to_json() | {"best_attacker_accuracy": self.best_attacker_accuracy}


TOLERANCE = 1e-9
"""Relative difference allowed between a stated and a recomputed number (another machine's libm rounds differently)."""


def confirm(part: str, *, stated: dict[str, Any], recomputed: dict[str, Any]) -> None:
    """Raises `PreconditionError` naming the number of `part` that is stated otherwise than recomputed."""
    if not isinstance(stated, dict) or stated.keys() != recomputed.keys():
        raise PreconditionError("numbers_recompute", f"Expected the fields of {part} to be {sorted(recomputed)}")
    for name, value in recomputed.items():
        if type(stated[name]) is type(value) and stated[name] == value:
            continue  # on the machine that stated it
        numbers = isinstance(value, float) and type(stated[name]) in (float, int)
        same = math.isclose(stated[name], value, rel_tol=TOLERANCE) if numbers else stated[name] == value
        if isinstance(stated[name], bool) or not same:
            raise PreconditionError("numbers_recompute", f"Expected {part}.{name}={stated[name]!r} to be {value!r}")


@lru_cache(
    maxsize=4096, typed=True
)  # a model that forgets one person after the other comes to the same numbers again and again
def guarantee(notion: Notion, *, mu: float, delta: float, process: str | None = None) -> Guarantee:
    """The guarantee of `mu` >= 0 in `notion`, converted at 0 < delta < 1 (Dong, Roth and Su 2022, Corollary 2.13)."""
    return Guarantee(
        notion=notion,
        adjacency=Adjacency.REPLACE if notion is Notion.RELEASE else Adjacency.ZERO_OUT,
        mu=mu,
        epsilon=conversion.gdp_epsilon(mu=mu, delta=delta),
        delta=delta,
        reference_process=process or REFERENCE_PROCESS[notion],
    )


def adaptive(found: Adaptive, *, delta: float) -> Guarantee:
    """The guarantee against people who read every version."""
    process = ADAPTIVE_IN_BUDGET if found.bounded else None
    return guarantee(Notion.ADAPTIVE, mu=found.mu, delta=delta, process=process)


def of_chain(chain: Chain, *, last_run: Run, delta: float) -> list[Guarantee]:
    """The guarantees of everybody at the version that `last_run` made: `unlearning` and `release`."""
    released = accountant.release_mu(chain.mechanism, steps=last_run.steps, adjacency=Adjacency.REPLACE)
    return [
        guarantee(Notion.UNLEARNING, mu=accountant.unlearning_mu(chain), delta=delta),
        guarantee(Notion.RELEASE, mu=released, delta=delta),
    ]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One person's deletion from one model version.

    `history`: the runs of the chain so far, learning first, or those after its first `steps_before` steps, where these
    are left out (`accountant.compact`). `records` of this person became null after `steps_present` steps of the chain
    (0: they were null before it began). `exposures`: for every model the records fed, keyed by model id, the versions
    published while they were present; `budgets`: of their datasets, of those that have one, keyed by dataset id.

    Raises `PreconditionError` where the parts contradict each other.
    """

    mechanism: Mechanism
    history: tuple[Run, ...]
    records: int
    steps_present: int
    exposures: dict[str, Exposure]
    budgets: dict[str, Budgeted] = field(default_factory=dict)
    steps_before: int = 0
    delta: float

    def __post_init__(self) -> None:
        if not self.history:
            raise PreconditionError("history_complete", "Expected the learning run to open the history")
        require_count(1, records=self.records)
        require_count(0, steps_present=self.steps_present, steps_before=self.steps_before)
        if self.steps_present <= self.steps_before and (self.steps_before or not self.steps_present):
            return
        steps = self.steps_before
        for run in self.history:
            if steps == self.steps_present and run.records >= self.records:
                return
            steps += run.steps
        raise PreconditionError(
            "deletion_in_history",
            f"Expected a run after {self.steps_present} steps that deleted at least {self.records} records",
        )

    @cached_property
    def chain(self) -> Chain:
        return accountant.replay(self.mechanism, self.history, steps_before=self.steps_before)

    def guarantees(self) -> list[Guarantee]:
        """All notions, at `delta`."""
        return self._guarantees

    @cached_property
    def _guarantees(self) -> list[Guarantee]:
        deleted = accountant.deletion_mu(self.chain, records=self.records, steps_present=self.steps_present)
        unlearned, released = of_chain(self.chain, last_run=self.history[-1], delta=self.delta)
        return [
            unlearned,
            guarantee(Notion.DELETION, mu=deleted, delta=self.delta),
            adaptive(budget.adaptive(self.exposures, self.budgets), delta=self.delta),
            released,
        ]

    def to_json(self) -> dict[str, Any]:
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
        """Inverse of `to_json`. Raises `LookupError`, `TypeError`, `ValueError` or `PrivacyError` on anything else."""
        return cls(
            mechanism=Mechanism.from_json(document["mechanism"]),
            steps_before=document["steps_before"],
            history=tuple(Run(steps=steps, records=records) for steps, records in document["history"]),
            records=document["records"],
            steps_present=document["steps_present"],
            exposures={
                model_id: Exposure(
                    mechanism=Mechanism.from_json(exposure["mechanism"]),
                    records=exposure["records"],
                    releases=tuple((steps, count) for steps, count in exposure["releases"]),
                    stretches=exposure["stretches"],
                )
                for model_id, exposure in document["exposures"].items()
            },
            budgets={dataset_id: Budgeted.from_json(one) for dataset_id, one in document["budgets"].items()},
            delta=document["delta"],
        )
