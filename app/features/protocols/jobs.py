"""Periodic jobs of the `protocols` feature."""

from app.features.protocols import identity
from app.installations import Installation
from app.operations.periodic_jobs import AT_ONCE, PeriodicJob, in_batches


def forget_statements(installation: Installation) -> None:
    """Delete used identity statements that have expired."""
    in_batches(installation, identity.is_anything_to_purge, lambda session: identity.purge(session, limit=AT_ONCE))


WORKER_JOBS = (PeriodicJob(name="forget_statements", seconds=600, do=forget_statements),)
