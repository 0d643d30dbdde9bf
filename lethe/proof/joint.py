"""The joint guarantee of one person over all models that carried them.

A certificate is about one model. Models draw their noise independently and read nothing of each other, so what is
published of several is, in either world, a product of laws, and guarantees of one notion compose: mu^2 is the sum of
mu^2 (Dong, Roth and Su 2022, Corollary 3.3; `docs/mathematics/joint.md` has the conditions). `adaptive` is about every
version of every model already, so it is one sum over all of them and no composition of certificates.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lethe.proof import accountant, budget, guarantees
from lethe.proof.accountant import Exposure
from lethe.proof.budget import Budgeted
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.guarantees import Evidence, Guarantee, Notion

_OF_ALL = "of all these models together: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """`models`: whose noise is composed. `deletion` is the number of the person; `guarantees` has it beside the other
    notions, at one delta."""

    models: tuple[str, ...]
    guarantees: tuple[Guarantee, ...]

    @property
    def deletion(self) -> Guarantee:
        return next(one for one in self.guarantees if one.notion is Notion.DELETION)

    def to_json(self) -> dict[str, Any]:
        person = self.deletion.stated()
        return {name: person[name] for name in ("mu", "epsilon", "delta", "best_attacker_accuracy")} | {
            "models": list(self.models),
            "guarantees": [guarantee.stated() for guarantee in self.guarantees],
        }


def of(evidences: Mapping[str, Evidence]) -> Joint:
    """Compose the guarantees of one person over these models, by id, at the least of their deltas.

    Raises `DomainError` for no model.

    >>> from lethe.proof.losses import Objective
    >>> from lethe.proof.mechanism import Mechanism
    >>> from lethe.proof.accountant import Run
    >>> m = Mechanism(objective=Objective.LOGISTIC_REGRESSION, num_slots=1000, num_classes=2, l2=0.05, step_size=2.0,
    ...               noise_scale=0.1, radius=20.0, learn_steps=50)
    >>> one = Evidence(mechanism=m, history=(Run(steps=50), Run(steps=7, records=1)), records=1, steps_present=50,
    ...                exposures={}, delta=1e-5)
    >>> round(of({"a": one, "b": one}).deletion.mu / of({"a": one}).deletion.mu, 6)
    1.414214
    """
    if not evidences:
        raise DomainError("Expected evidence of at least one model")
    delta = min(evidence.delta for evidence in evidences.values())
    mus = {notion: _composed(evidences, notion) for notion in (Notion.UNLEARNING, Notion.DELETION)}
    found = [guarantees.guarantee(notion, mu=mu, delta=delta) for notion, mu in mus.items()]
    found.append(guarantees.adaptive(budget.adaptive(_exposures(evidences), _budgets(evidences)), delta=delta))
    return Joint(
        models=tuple(sorted(evidences)),
        guarantees=tuple(replace(one, reference_process=_OF_ALL + one.reference_process) for one in found),
    )


def _composed(evidences: Mapping[str, Evidence], notion: Notion) -> float:
    found = [one.mu for evidence in evidences.values() for one in evidence.guarantees() if one.notion is notion]
    return math.sqrt(math.fsum(mu * mu for mu in found))


def _exposures(evidences: Mapping[str, Evidence]) -> dict[str, Exposure]:
    """The exposure, for every model that the person's records fed, of somebody who read most of it: statements that
    were made at different times may have counted differently."""
    largest: dict[str, Exposure] = {}
    for evidence in evidences.values():
        for model_id, exposure in evidence.exposures.items():
            known = largest.get(model_id)
            if known is None or accountant.adaptive_mu([exposure]) > accountant.adaptive_mu([known]):
                largest[model_id] = exposure
    return largest


def _budgets(evidences: Mapping[str, Evidence]) -> dict[str, Budgeted]:
    """The budget of every dataset, with the models that any of the statements names."""
    found: dict[str, Budgeted] = {}
    for evidence in evidences.values():
        for dataset_id, budgeted in evidence.budgets.items():
            known = found.get(dataset_id, budgeted)
            if known.budget != budgeted.budget:
                raise PreconditionError("budget_kept", f"Expected one budget of {dataset_id}")
            models = dict.fromkeys((*known.models, *budgeted.models))
            found[dataset_id] = replace(known, models=tuple(models))
    return found
