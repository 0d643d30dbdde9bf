"""Periodic jobs of the `identities` feature."""

from app.features.identities import service
from app.installations import Installation
from app.operations.periodic_jobs import AT_ONCE, PeriodicJob, in_batches


def identify(installation: Installation) -> None:
    """Resume requests whose identity was unknown at submission but is now known."""
    after: str | None = ""
    while after is not None:
        with installation.database.reading() as session:
            if not service.is_any_unknown(session):
                return
        with installation.database.writing() as session:
            after = service.recheck(session, after=after, limit=AT_ONCE)


def drop_forgotten(installation: Installation) -> None:
    """Delete forgotten people from identity maps."""
    in_batches(
        installation, service.is_anybody_forgotten, lambda session: service.drop_forgotten(session, limit=AT_ONCE)
    )


WORKER_JOBS = (
    PeriodicJob(name="identify", seconds=10, do=identify),
    PeriodicJob(name="drop_forgotten_identities", seconds=60, do=drop_forgotten),
)
