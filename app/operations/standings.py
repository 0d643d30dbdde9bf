"""Standings of models: in what danger each is, the worst first."""

import datetime
from collections import Counter
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.accounting import ledger
from app.accounting import repository as accounting_repository
from app.catalogue import repository as catalogue_repository
from app.db.tables import Model
from app.deletion import repository as deletion_repository
from app.unlearning import repository, waiting
from lethe.contract.sets import ModelStatus

_NEVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStanding:
    """`first_due_at`: the earliest deadline of those who asked to be forgotten and are in the live version like
    everybody else (None: there are none); `due_at`: that of any request that waits for the model; `load`: the
    `unlearning` epsilon of the live version, as it was published, in units of its target; `failed_runs`: that no later
    one made good; `refused`: whether the last audit refuted its run (None: there was none); `degraded`, `held`: the
    live version misses its quality gate, and is kept from serving for that."""

    model: Model
    first_due_at: datetime.datetime | None
    due_at: datetime.datetime | None
    load: float
    failed_runs: int
    refused: bool | None
    degraded: bool
    held: bool

    @property
    def has_failed(self) -> bool:
        return self.model.status == ModelStatus.FAILED

    @property
    def rank(self) -> tuple[datetime.datetime, float, int, str]:
        return self.due_at or _NEVER, -self.load, -self.failed_runs, self.model.id


def of_models(session: Session) -> list[ModelStanding]:
    """Every model in service of the session's tenant, those in most danger first."""
    models = catalogue_repository.models_in_service(session)
    waits = waiting.first_due(session, models)
    owed = deletion_repository.first_deadlines(session)
    epsilons = {
        model_id: ledger.epsilon_of(entry) for model_id, entry in accounting_repository.last_entries(session).items()
    }
    refused = repository.last_audits_refused(session)
    judged = catalogue_repository.degraded_versions(session)
    failed: Counter[str | None] = Counter()
    for model_id, _, count in repository.unresolved_runs(session):
        failed[model_id] += count
    found = []
    for model in models:
        first_due_at = waits.get(model.id)
        deadlines = [at for at in (first_due_at, owed.get(model.id)) if at is not None]
        found.append(
            ModelStanding(
                model=model,
                first_due_at=first_due_at,
                due_at=min(deadlines, default=None),
                load=epsilons.get(model.id, 0.0) / model.epsilon,
                failed_runs=failed[model.id],
                refused=refused.get(model.id),
                degraded=model.id in judged,
                held=judged.get(model.id, False),
            )
        )
    return sorted(found, key=lambda standing: standing.rank)
