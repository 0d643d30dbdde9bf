"""Periodic jobs of the `systems` feature."""

import datetime

from app.features.systems import service
from app.installations import Installation
from app.operations.periodic_jobs import AT_ONCE, PeriodicJob, in_batches


def remind_systems(installation: Installation) -> None:
    """Remind systems of open tasks whose deadline is near or has passed."""
    horizon = datetime.timedelta(days=installation.settings.risk_days)
    in_batches(
        installation,
        lambda session: bool(service.to_remind(session, horizon=horizon, limit=1)),
        lambda session: service.remind(session, horizon=horizon, limit=AT_ONCE),
    )


WORKER_JOBS = (PeriodicJob(name="remind_systems", seconds=30, do=remind_systems),)
