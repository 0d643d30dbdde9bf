"""Periodic jobs of the `attested` feature."""

from app.features.attested import service
from app.installations import Installation
from app.operations.periodic_jobs import PeriodicJob


def announce_retrainings(installation: Installation) -> None:
    """Notify trainers of the time by which they must retrain, each in a separate transaction."""
    with installation.database.reading() as session:
        trainer_ids = service.to_announce(session)
    for trainer_id in trainer_ids:
        with installation.database.writing() as session:
            service.announce(session, trainer_id)


WORKER_JOBS = (PeriodicJob(name="announce_retrainings", seconds=30, do=announce_retrainings),)
