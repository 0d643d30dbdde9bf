"""Periodic jobs of the `drop` feature."""

from app.audit import service as audit
from app.db import Actor
from app.features.drop import service
from app.installations import Installation
from app.operations.periodic_jobs import AT_ONCE, PeriodicJob, in_batches


def match_drop(installation: Installation) -> None:
    """Create deletion requests for DROP lines that match exactly one person."""
    with installation.database.reading() as session:
        tenant_ids = service.tenants_to_match(session)
    for tenant_id in tenant_ids:
        after: str | None = ""
        while after is not None:
            with installation.database.writing(by=Actor(tenant_id=tenant_id, name=audit.SERVICE)) as session:
                after = service.match(session, after=after, limit=AT_ONCE)
        installation.notifier.wake()


def drop_forgotten(installation: Installation) -> None:
    """Delete the hashes of people who have been forgotten."""
    in_batches(
        installation, service.is_anybody_forgotten, lambda session: service.drop_forgotten(session, limit=AT_ONCE)
    )


WORKER_JOBS = (
    PeriodicJob(name="match_drop", seconds=10, do=match_drop),
    PeriodicJob(name="drop_forgotten_hashes", seconds=60, do=drop_forgotten),
)
