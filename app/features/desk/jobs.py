"""Periodic jobs of the `desk` feature."""

from app.features.desk import sessions
from app.installations import Installation
from app.operations.periodic_jobs import AT_ONCE, PeriodicJob, in_batches


def forget_sessions(installation: Installation) -> None:
    """Delete dashboard sessions that have ended."""
    settings = installation.settings
    in_batches(
        installation,
        lambda session: sessions.is_any_over(session, settings=settings),
        lambda session: sessions.purge(session, settings=settings, limit=AT_ONCE),
    )


WORKER_JOBS = (PeriodicJob(name="forget_sessions", seconds=600, do=forget_sessions),)
