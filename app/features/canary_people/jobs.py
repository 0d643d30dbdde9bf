"""Periodic jobs of the `canary_people` feature."""

import sqlalchemy as sa

from app.features.canary_people.tables import CanaryRound
from app.features.trainers.tables import Trainer, Training
from app.installations import Installation
from app.operations.periodic_jobs import PeriodicJob
from lethe.features.trainers.contract import TrainingStatus


def destroy_canaries(installation: Installation) -> None:
    """Destroy the canaries of runs that have ended and are not live: no later run is tested against them."""
    is_needed = sa.or_(
        sa.exists().where(Trainer.live_id == CanaryRound.training_id),
        sa.exists().where(Training.id == CanaryRound.training_id, Training.status == TrainingStatus.RUNNING),
    )
    with installation.database.reading() as session:
        keys = list(session.scalars(sa.select(CanaryRound.key).where(CanaryRound.key.is_not(None), ~is_needed)))
    if not keys:
        return
    # Destroying again after a crash is a no-op.
    installation.vault.destroy(key for key in keys if key is not None)
    with installation.database.writing() as session:
        session.execute(sa.update(CanaryRound).where(CanaryRound.key.in_(keys)).values(key=None, content=None))


WORKER_JOBS = (PeriodicJob(name="destroy_canaries", seconds=60, do=destroy_canaries),)
