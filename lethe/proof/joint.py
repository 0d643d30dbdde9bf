"""Joint guarantee for one person over all models trained on their records.

A certificate covers one model. Models draw independent noise and do not read each other, so the joint law of their
published versions is a product, and guarantees of the same notion compose: mu^2 is the sum of the models' mu^2 (Dong,
Roth and Su 2022, Corollary 3.3; the conditions are in `docs/mathematics/joint.md`). `adaptive` already covers every
version of every model, so it is a single sum and not a composition of certificates.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lethe.proof import accountant, budget, errors, guarantees, methods
from lethe.proof.guarantees import Evidence, Guarantee, Notion

_PROCESS_PREFIX = "of all these models together: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """One person's joint guarantees over `models` (ids), all at the same delta."""

    models: tuple[str, ...]
    guarantees: tuple[Guarantee, ...]

    @property
    def deletion(self) -> Guarantee:
        """Joint `deletion` guarantee, the one reported for the person."""
        return next(guarantee for guarantee in self.guarantees if guarantee.notion is Notion.DELETION)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers of the `deletion` guarantee, the models, and all guarantees."""
        deletion = self.deletion.stated()
        return {name: deletion[name] for name in ("mu", "epsilon", "delta", "best_attacker_accuracy")} | {
            "models": list(self.models),
            "guarantees": [guarantee.stated() for guarantee in self.guarantees],
        }


def of(evidences: Mapping[str, Evidence]) -> Joint:
    """Compose one person's guarantees over several models, at the minimum of their deltas.

    `evidences` are keyed by model id.

    Raises:
        DomainError: if there is no model.
        PreconditionError: if `evidences` state different budgets for a dataset, or if a budget is exceeded.

    >>> from lethe.proof.losses import Objective
    >>> from lethe.proof.mechanism import Mechanism
    >>> from lethe.proof.accountant import Run
    >>> m = Mechanism(objective=Objective.LOGISTIC_REGRESSION, num_slots=1000, num_classes=2, l2=0.05, step_size=2.0,
    ...               noise_scale=0.1, radius=20.0, learn_steps=50)
    >>> evidence = Evidence(mechanism=m, history=(Run(steps=50), Run(steps=7, records=1)), records=1, steps_present=50,
    ...                     exposures={}, delta=1e-5)
    >>> round(of({"a": evidence, "b": evidence}).deletion.mu / of({"a": evidence}).deletion.mu, 6)
    1.414214
    """
    if not evidences:
        raise errors.DomainError("Expected evidence of at least one model")
    delta = min(evidence.delta for evidence in evidences.values())
    mus = {notion: _composed_mu(evidences, notion) for notion in (Notion.UNLEARNING, Notion.DELETION)}
    composed = [guarantees.guarantee(notion, mu=mu, delta=delta) for notion, mu in mus.items()]
    composed.append(guarantees.adaptive(budget.adaptive(_exposures(evidences), _budgets(evidences)), delta=delta))
    return Joint(
        models=tuple(sorted(evidences)),
        guarantees=tuple(
            replace(guarantee, reference_process=_PROCESS_PREFIX + guarantee.reference_process)
            for guarantee in composed
        ),
    )


def _composed_mu(evidences: Mapping[str, Evidence], notion: Notion) -> float:
    """Return the square root of the sum of the models' mu^2 in `notion`."""
    mus = [
        guarantee.mu
        for evidence in evidences.values()
        for guarantee in evidence.guarantees()
        if guarantee.notion is notion
    ]
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def _exposures(evidences: Mapping[str, Evidence]) -> dict[str, accountant.Exposure]:
    """Return the largest exposure stated for each model trained on the person's records, keyed by model id.

    Evidence issued at different times may state different exposures to the same model.
    """
    largest: dict[str, accountant.Exposure] = {}
    for evidence in evidences.values():
        for model_id, exposure in evidence.exposures.items():
            previous = largest.get(model_id)
            if previous is None or methods.adaptive_mu([exposure]) > methods.adaptive_mu([previous]):
                largest[model_id] = exposure
    return largest


def _budgets(evidences: Mapping[str, Evidence]) -> dict[str, budget.Budgeted]:
    """Return every dataset's budget with the union of the models named in `evidences`.

    Raises:
        PreconditionError: if `evidences` state different budgets for a dataset.
    """
    budgets: dict[str, budget.Budgeted] = {}
    for evidence in evidences.values():
        for dataset_id, budgeted in evidence.budgets.items():
            merged = budgets.get(dataset_id, budgeted)
            if merged.budget != budgeted.budget:
                raise errors.PreconditionError("budget_kept", f"Expected one budget of {dataset_id}")
            models = dict.fromkeys((*merged.models, *budgeted.models))
            budgets[dataset_id] = replace(merged, models=tuple(models))
    return budgets
