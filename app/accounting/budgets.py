"""Adaptive budgets of datasets: limits on what all published versions together reveal to a reader of every version."""

from collections import Counter

from sqlalchemy.orm import Session

from app.accounting import repository
from app.db.tables import Dataset, stored_mechanism
from lethe.contract.problems import AdaptiveBudgetSpent
from lethe.proof import accountant, methods
from lethe.proof.budget import Budget
from lethe.proof.mechanism import Mechanism

_NEXT = "the next version"


def of(dataset: Dataset) -> Budget | None:
    """Return a dataset's adaptive budget, or None if the dataset was created without one."""
    return Budget(**dataset.adaptive_budget) if dataset.adaptive_budget else None


def exposures(session: Session, *, dataset_id: str, records: int) -> dict[str, accountant.Exposure]:
    """Map each of a dataset's models to the exposure of a person with `records` records in all versions so far."""
    next_revision = session.get_one(Dataset, dataset_id).revision + 1
    by_model = {}
    for model, published in repository.releases_before(session, dataset_id=dataset_id, revision=next_revision):
        mechanism, lost = stored_mechanism(model.mechanism), len(model.lost_releases)
        by_model[model.id] = accountant.exposed(mechanism, published, records=records, lost=lost)
    for model_id, mechanism, steps in repository.lost_models(session, dataset_id=dataset_id):
        by_model[model_id] = accountant.exposed(mechanism, Counter(steps), records=records, lost=len(steps))
    return by_model


def require_room(session: Session, dataset: Dataset, mechanism: Mechanism, *, steps: int) -> None:
    """Raise `AdaptiveBudgetSpent` if a dataset's budget has no room for another version of a model with this mechanism,
    published by a run of `steps` steps."""
    _require(session, dataset, {_NEXT: accountant.Exposure(mechanism=mechanism, records=1, releases=((steps, 1),))})


def require_kept(session: Session, dataset: Dataset) -> None:
    """Raise `AdaptiveBudgetSpent` if the versions already on record exceed a dataset's budget."""
    _require(session, dataset, {})


def _require(session: Session, dataset: Dataset, more: dict[str, accountant.Exposure]) -> None:
    budget = of(dataset)
    if budget is None:
        return
    published = {
        model_id: exposure
        for model_id, exposure in exposures(session, dataset_id=dataset.id, records=1).items()
        if exposure.releases
    }
    if not budget.covers(published | more):
        spent = methods.adaptive_mu(published.values())
        raise AdaptiveBudgetSpent(dataset_id=dataset.id, mu=budget.mu, spent=spent)
