"""Periodic jobs of the `trainers` feature."""

import functools
import threading

from app import installations, periodic
from app.features.trainers import training
from app.operations.periodic_jobs import PeriodicJob

_lock = threading.Lock()
_trainers: dict[int, periodic.Periodic] = {}


def erase_from_tables(installation: installations.Installation) -> None:
    """Erase people's rows from training tables, even during a training run."""
    if training.is_anything_kept(installation):
        training.settle_tables(installation)
        training.destroy_retired_keys(installation)


def train(installation: installations.Installation) -> None:
    """Wake this process's training thread, which carries out due training runs one at a time."""
    if not training.is_anything_kept(installation):
        return
    with _lock:
        trainer = _trainers.get(id(installation))
        if trainer is None:
            work = functools.partial(_train_all, installation)
            trainer = _trainers[id(installation)] = periodic.Periodic("trainers", work, seconds=None).start()
    trainer.wake()


def _train_all(installation: installations.Installation) -> None:
    while training.run_next(installation):
        pass


WORKER_JOBS = (
    PeriodicJob(name="erase_from_tables", seconds=1, do=erase_from_tables),
    PeriodicJob(name="train", seconds=1, do=train),
)
