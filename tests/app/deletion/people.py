"""Made-up people in a dataset without rows on disk, and helpers that simulate the passing of time."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access.service import DEFAULT_TENANT
from app.db import Actor
from app.db.tables import Dataset, DeletionRequest, RequestEvent, Suppression, Tenant
from app.deletion import service as deletion
from app.deletion.service import RequestDraft, Submitted
from app.installations import Installation
from app.rows import records
from lethe import sockets
from lethe.contract.problems import Problem
from lethe.contract.tenants import Policy

OFFICER = Actor(tenant_id=DEFAULT_TENANT, name="officer")
_MOMENTS = (
    *(getattr(DeletionRequest, name) for name in ("submitted_at", "due_at", "extended_due_at", "deadline")),
    *(getattr(DeletionRequest, name) for name in ("paused_at", "held_until", "created_at", "completed_at")),
    DeletionRequest.reported_at,
    DeletionRequest.ended_at,
    RequestEvent.at,
    Suppression.created_at,
)
_STATEMENTS = [
    module.UsedStatement for module in sockets.modules("app.features", "tables") if hasattr(module, "UsedStatement")
]
"""Identity statements of the feature protocols, if that is installed."""


def obey(session: Session, policy: Policy) -> Policy:
    """Set the tenant's policy."""
    session.get_one(Tenant, DEFAULT_TENANT).policy = policy.model_dump(mode="json")
    return policy


def hold(session: Session, people: list[str], *, dataset_id: str = "ds_1") -> None:
    """Create a dataset with one row for each of the given people."""
    at = datetime.datetime.now(datetime.UTC)
    dataset = Dataset(
        id=dataset_id,
        tenant_id=DEFAULT_TENANT,
        name="people",
        classes=["0", "1"],
        num_features=1,
        num_slots=len(people),
        digest="",
        revision=0,
        created_at=at,
    )
    session.add(dataset)
    session.flush()
    records.add(session, dataset_id=dataset_id, subject_refs=people, slots=range(len(people)))


def asked(person: str, policy: Policy, **given: object) -> RequestDraft:
    usual: dict[str, object] = {"dataset_ids": None, "regulation": "gdpr", "ground": None, "submitted_at": None}
    usual |= {"by": OFFICER, "policy": policy, "discreet": False, "external_id": None, "metadata": {}}
    return RequestDraft(subject_ref=person, **(usual | given))  # type: ignore[arg-type]


def ask(session: Session, person: str, policy: Policy, **given: object) -> Submitted:
    return submit(session, asked(person, policy, **given))


def submit(session: Session, draft: RequestDraft) -> Submitted:
    """Submit one request, or raise its problem."""
    [result] = deletion.submit_all(session, [draft])
    if isinstance(result, Problem):
        raise result
    return result


def later(session: Session, passed: datetime.timedelta) -> None:
    """Move all timestamps of requests back by `passed`, as if that much time had passed."""
    for table in (DeletionRequest, RequestEvent, Suppression, *_STATEMENTS):
        for row in session.scalars(sa.select(table)).all():
            for column in (*_MOMENTS, *(used.expires_at for used in _STATEMENTS)):
                if column.class_ is table and getattr(row, column.key) is not None:
                    setattr(row, column.key, getattr(row, column.key) - passed)


def kept(installation: Installation, request_id: str) -> str:
    """Return how much of a request's data is still kept."""
    with installation.database.reading() as session:
        return session.get_one(DeletionRequest, request_id).kept


def pass_by(installation: Installation, passed: datetime.timedelta) -> None:
    """Simulate the passing of time by moving back the timestamps in the database."""
    with installation.database.writing() as session:
        later(session, passed)
