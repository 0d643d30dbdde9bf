"""`/accounting/datasets/{id}/plan`: what a model would cost at each epsilon, and what those there are have reached."""

from collections.abc import Iterator, Sequence

from fastapi import APIRouter

from app.api.calls import Call
from app.api.gateway import serves
from app.catalogue import datasets, mechanisms, quality, repository
from app.db.mechanisms import stored_mechanism
from app.db.tables import Model, Run, Version
from lethe.contract import plans as contract
from lethe.contract.plans import CostOut, MeasuredVersionOut, PlanOut, PlanQuery
from lethe.contract.sets import Metric, RunKind, VersionStatus

router = APIRouter()

_MOST_VERSIONS = 100
_METRICS = (Metric.ACCURACY, Metric.LABEL_ACCURACY, Metric.R_SQUARED)
"""The first that a version has is the one that a plan shows, unless it is asked for another."""


@serves(router, contract.PLAN)
def get_plan(call: Call, dataset_id: str, query: PlanQuery) -> PlanOut:
    with call.reading() as session:
        dataset = datasets.get(session, dataset_id)
        objective, found = mechanisms.costs_of(
            dataset, objective=query.objective, loss_width=query.loss_width, l2=query.l2
        )
        published = repository.versions_from(session, dataset_id=dataset.id, limit=_MOST_VERSIONS)
        measured = [one for row in published for one in _measured([query.metric] if query.metric else _METRICS, *row)]
    return PlanOut(
        dataset_id=dataset_id,
        objective=objective,
        costs=[CostOut.model_validate(cost, from_attributes=True) for cost in found],
        measured=measured,
    )


def _measured(metrics: Sequence[Metric], model: Model, version: Version, run: Run) -> Iterator[MeasuredVersionOut]:
    """The version as it was measured; nothing where it was not."""
    mechanism = stored_mechanism(model.mechanism)
    values = [(metric, value) for metric in metrics if (value := quality.value_of(metric, version.metrics)) is not None]
    for metric, value in values[:1]:
        yield MeasuredVersionOut(
            model_id=model.id,
            name=model.name,
            version=version.number,
            live=version.status == VersionStatus.LIVE,
            kind=RunKind(run.kind),
            epsilon=model.epsilon,
            l2=mechanism.l2,
            passes=run.steps_total / mechanism.num_batches,
            metric=metric,
            value=value,
            published_at=version.published_at,
        )
