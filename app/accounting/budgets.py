"""Budgets of datasets: what all their versions together may ever tell, to people who read every one of them."""

from collections import Counter

from sqlalchemy.orm import Session

from app.accounting import repository
from app.db.mechanisms import stored_mechanism
from app.db.tables import Dataset
from lethe.contract.problems import AdaptiveBudgetSpent
from lethe.proof import accountant
from lethe.proof.accountant import Exposure
from lethe.proof.budget import Budget
from lethe.proof.mechanism import Mechanism

_NEXT = "the next version"


def of(dataset: Dataset) -> Budget | None:
    """The budget that the dataset was made with, if any."""
    return Budget(**dataset.adaptive_budget) if dataset.adaptive_budget else None


def exposures(session: Session, *, dataset_id: str, records: int) -> dict[str, Exposure]:
    """By model of a dataset, everything published so far, to a person whose `records` have fed all of it."""
    beyond = session.get_one(Dataset, dataset_id).revision + 1
    found = {}
    for fed in repository.models_of(session, dataset_id=dataset_id):
        published = repository.releases_before(session, model_id=fed.id, revision=beyond)
        mechanism, lost = stored_mechanism(fed.mechanism), len(fed.lost_releases)
        found[fed.id] = accountant.exposed(mechanism, published, records=records, lost=lost)
    for model_id, mechanism, steps in repository.lost_models(session, dataset_id=dataset_id):
        found[model_id] = accountant.exposed(mechanism, Counter(steps), records=records, lost=len(steps))
    return found


def require_room(session: Session, dataset: Dataset, mechanism: Mechanism, *, steps: int) -> None:
    """Raises `AdaptiveBudgetSpent` unless the budget of a dataset has room for one more version, made by a run of
    `steps`, of a model of this mechanism."""
    _require(session, dataset, {_NEXT: Exposure(mechanism=mechanism, records=1, releases=((steps, 1),))})


def require_kept(session: Session, dataset: Dataset) -> None:
    """Raises `AdaptiveBudgetSpent` if the versions on record exceed the budget of a dataset."""
    _require(session, dataset, {})


def _require(session: Session, dataset: Dataset, more: dict[str, Exposure]) -> None:
    budget = of(dataset)
    if budget is None:
        return
    published = {
        model_id: exposure
        for model_id, exposure in exposures(session, dataset_id=dataset.id, records=1).items()
        if exposure.releases
    }
    if not budget.covers(published | more):
        spent = accountant.adaptive_mu(list(published.values()))
        raise AdaptiveBudgetSpent(
            f"Dataset {dataset.id} has an adaptive budget of mu = {budget.mu:.4g}, of which {spent:.4g} is spent: "
            "there is no room for another version. Requests wait for the models that carried their rows: retire those "
            "(DELETE /v1/models/{model_id}), and learn from a new dataset."
        )
