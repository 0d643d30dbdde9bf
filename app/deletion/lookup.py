"""Look-up of people when requests about them come in: what is held of them and under way for them, in a few statements
for many."""

import datetime
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import rows
from app.db.likely import usually
from app.db.tables import OWED, Dataset, DeletionRequest, Erasure, Model, Record, RequestAlias, RequestModel, Version
from app.deletion.status import OPEN
from app.rows import repository as rows_repository
from lethe.contract.sets import ModelStatus, RequestModelStatus
from lethe.proof import target

_PEOPLE_AT_ONCE = 5000
"""A statement that names them three times stays below what either database takes: a request may have many aliases."""
_HAS_OR_MAY = sa.or_(
    Model.status.not_in((ModelStatus.FAILED, ModelStatus.CANCELLED, ModelStatus.RETIRED)),
    Model.live_version.is_not(None),
)
"""A condition on models: not those that came to nothing before they had a version, or were retired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """An erasure of an open request that has claimed its rows."""

    request_id: str
    dataset_id: str
    revision: int
    num_records: int
    nulled_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """Facts about some people and datasets when requests about them come in."""

    datasets: dict[str, str]  # and whose they are
    holding: dict[str, list[str]]  # subject_ref: datasets with rows that nobody has claimed
    models: dict[str, list[str]]  # dataset: models that may carry its rows
    claimed: dict[str, dict[str, UnderWay]]  # subject_ref: of each dataset, the last
    nulled: dict[tuple[str, int], int]  # dataset and revision where several have claimed: rows that all together did
    owed: dict[tuple[str, str], list[str]]  # request and dataset of those: models that still carry the rows
    widened: set[tuple[str, str]]  # request and dataset of those: a model met a target beyond the default bounds
    doubtful: dict[str, str]  # datasets that may hold people who are not found, and whose they are

    def held(self, subject_refs: Iterable[str]) -> set[str]:
        """Datasets with rows of the person that nobody has claimed."""
        return {dataset_id for ref in subject_refs for dataset_id in self.holding.get(ref, ())}

    def followed(self, subject_refs: Iterable[str]) -> dict[str, "Followed"]:
        """The erasures that another request of the person joins: of each dataset all that is under way, as one."""
        of_dataset: dict[str, dict[str, UnderWay]] = {}
        for ref in subject_refs:
            for dataset_id, first in self.claimed.get(ref, {}).items():
                of_dataset.setdefault(dataset_id, {})[first.request_id] = first
        return {
            dataset_id: self._as_one(dataset_id, list(firsts.values())) for dataset_id, firsts in of_dataset.items()
        }

    def _as_one(self, dataset_id: str, firsts: Sequence[UnderWay]) -> "Followed":
        nulled = [first.nulled_at for first in firsts if first.nulled_at is not None]
        models = (model for first in firsts for model in self.owed.get((first.request_id, dataset_id), ()))
        revision = max(first.revision for first in firsts)
        return Followed(
            revision=revision,
            num_records=self._count(
                dataset_id, revision, [one.num_records for one in firsts if one.revision == revision]
            ),
            nulled_at=max(nulled) if len(nulled) == len(firsts) else None,
            models=list(dict.fromkeys(models)),
            widened=any((first.request_id, dataset_id) in self.widened for first in firsts),
        )

    def _count(self, dataset_id: str, revision: int, of_each: Sequence[int]) -> int:
        """Rows of the person that are erased at one revision, at most: some may be counted with several requests, and
        no run forgets more than all that were claimed."""
        if len(of_each) == 1:
            return of_each[0]
        return max(*of_each, min(sum(of_each), self.nulled[dataset_id, revision]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Rows of a person that are being erased for other requests, by `revision` at the latest, and the models that still
    carry them. `num_records`: those of that revision; what was erased before it is certified to the one who asked
    first. `widened`: a model met a target beyond the default bounds."""

    revision: int
    num_records: int
    nulled_at: datetime.datetime | None
    models: list[str]
    widened: bool


_THESE: sa.BindParameter[Sequence[str]] = sa.bindparam("these", expanding=True)
_DATASETS = sa.select(Dataset.id, Dataset.tenant_id).where(Dataset.tenant_id.in_(_THESE))
_CLAIMED = (Erasure.request_id, Erasure.revision, Erasure.num_records, Erasure.nulled_at)
_PEOPLE = sa.union_all(
    sa.select(DeletionRequest.subject_ref, Erasure.dataset_id, *_CLAIMED)
    .join(DeletionRequest, DeletionRequest.id == Erasure.request_id)
    .where(DeletionRequest.subject_ref.in_(_THESE), DeletionRequest.status.in_(OPEN), Erasure.num_records > 0),
    sa.select(RequestAlias.subject_ref, Erasure.dataset_id, *_CLAIMED)
    .join(DeletionRequest, DeletionRequest.id == RequestAlias.request_id)
    .join(Erasure, Erasure.request_id == RequestAlias.request_id)
    .where(RequestAlias.subject_ref.in_(_THESE), DeletionRequest.status.in_(OPEN), Erasure.num_records > 0),
    sa.select(Record.subject_ref, Record.dataset_id, *[sa.cast(sa.null(), column.type) for column in _CLAIMED])
    .where(Record.subject_ref.in_(_THESE), usually(Record.erasure_id.is_(None)))
    .distinct(),
)
_MODELS = sa.select(Model.dataset_id, Model.id).where(Model.dataset_id.in_(_THESE), _HAS_OR_MAY).order_by(Model.id)
_OWED = (
    sa.select(RequestModel.request_id, Model.dataset_id, Model.id)
    .join(Model, Model.id == RequestModel.model_id)
    .where(RequestModel.request_id.in_(_THESE), RequestModel.status.in_(OWED), _HAS_OR_MAY)
    .order_by(Model.id)
)
_REVISIONS: sa.BindParameter[Sequence[int]] = sa.bindparam("revisions", expanding=True)
_NULLED = (
    sa.select(Erasure.dataset_id, Erasure.revision, sa.func.sum(Erasure.num_claimed))
    .where(Erasure.dataset_id.in_(_THESE), Erasure.revision.in_(_REVISIONS))
    .group_by(Erasure.dataset_id, Erasure.revision)
)
_IS_WIDENED = sa.or_(Model.epsilon > target.LARGEST_EPSILON, Model.delta > 1.0 / Dataset.num_slots)
"""As `target.is_widened`, of a model beside its dataset."""
_WIDENED = sa.union(
    sa.select(RequestModel.request_id, Model.dataset_id)
    .join(Model, Model.id == RequestModel.model_id)
    .join(Dataset, Dataset.id == Model.dataset_id)
    .where(RequestModel.request_id.in_(_THESE), RequestModel.status == RequestModelStatus.COMPLETED, _IS_WIDENED),
    sa.select(Erasure.request_id, Erasure.dataset_id)  # a request that joined another may be owed nothing by it
    .join(Dataset, Dataset.id == Erasure.dataset_id)
    .join(Model, Model.dataset_id == Erasure.dataset_id)
    .where(
        Erasure.request_id.in_(_THESE),
        Model.status != ModelStatus.RETIRED,
        sa.exists().where(Version.model_id == Model.id, Version.revision < Erasure.revision),
        _IS_WIDENED,
    ),
)
"""Made once: making a statement anew takes longer than running it."""


def widened(session: Session, *, request_ids: Collection[str]) -> set[tuple[str, str]]:
    """These requests, each with a dataset they asked about: where a model met a target beyond the default bounds, or
    carried the person and has such a target."""
    return {(request_id, dataset_id) for request_id, dataset_id in session.execute(_WIDENED, {"these": request_ids})}


def look_up(session: Session, *, subject_refs: Iterable[str], tenant_ids: Collection[str] = ()) -> LookedUp:
    """Look these people up; and which datasets these tenants have: they are few, however many a caller names."""
    doubtful = rows_repository.doubtful(session)
    found = LookedUp(
        datasets={}, holding={}, models={}, claimed={}, nulled={}, owed={}, widened=set(), doubtful=doubtful
    )
    if tenant_ids:
        of_tenants = rows(session, _DATASETS, {"these": list(tenant_ids)})
        found.datasets.update((dataset_id, tenant_id) for dataset_id, tenant_id in of_tenants)
    people = (row for some in in_parts(subject_refs) for row in rows(session, _PEOPLE, {"these": some}))
    for subject_ref, dataset_id, request_id, *claimed in people:
        if request_id is None:
            found.holding.setdefault(subject_ref, []).append(dataset_id)
            continue
        revision, num_records, nulled_at = claimed
        of_person = found.claimed.setdefault(subject_ref, {})
        if dataset_id not in of_person or of_person[dataset_id].revision <= revision:
            of_person[dataset_id] = UnderWay(
                request_id=request_id,
                dataset_id=dataset_id,
                revision=revision,
                num_records=num_records,
                nulled_at=nulled_at,
            )
    holders = {dataset_id for dataset_ids in found.holding.values() for dataset_id in dataset_ids}
    if holders:
        for dataset_id, model_id in rows(session, _MODELS, {"these": list(holders)}):
            found.models.setdefault(dataset_id, []).append(model_id)
    first = {claimed.request_id for of_person in found.claimed.values() for claimed in of_person.values()}
    if first:
        for request_id, dataset_id, model_id in rows(session, _OWED, {"these": list(first)}):
            found.owed.setdefault((request_id, dataset_id), []).append(model_id)
        found.widened.update(widened(session, request_ids=list(first)))
    shared = _shared(found.claimed.values())
    if shared:
        asked = {"these": [dataset_id for dataset_id, _ in shared], "revisions": [revision for _, revision in shared]}
        found.nulled.update({(dataset_id, at): claimed for dataset_id, at, claimed in rows(session, _NULLED, asked)})
    return found


def in_parts(subject_refs: Iterable[str]) -> Iterator[list[str]]:
    """People, as many at a time as one statement takes."""
    remaining = iter(subject_refs)
    while some := list(islice(remaining, _PEOPLE_AT_ONCE)):
        yield some


def _shared(of_people: Iterable[dict[str, UnderWay]]) -> set[tuple[str, int]]:
    """Datasets, each with a revision at which several requests have claimed rows."""
    claimed = {(one.request_id, one.dataset_id, one.revision) for of_person in of_people for one in of_person.values()}
    requests = Counter((dataset_id, revision) for _, dataset_id, revision in claimed)
    return {place for place, count in requests.items() if count > 1}


def models_of(session: Session, *, dataset_id: str) -> list[Model]:
    """Models that learned from a dataset, or will: not those that came to nothing before they had a version, or were
    retired."""
    query = sa.select(Model).where(Model.dataset_id == dataset_id, _HAS_OR_MAY)
    return list(session.scalars(query.order_by(Model.id)))
