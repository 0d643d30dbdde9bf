"""The one Celery task: hear the bell, then do all runs that are due. It carries nothing and returns nothing.

A worker that is told to stop finishes the run in progress and leaves the others to whoever comes next.
"""

import datetime
import os
import socket

from app import dispatch, installation
from app.registry import datasets
from worker import runner
from worker.celery_app import app, settings, stopping

_UNCLAIMED_FOR = datetime.timedelta(hours=1)


@app.task(name=dispatch.TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def work() -> None:
    with installation.opened(settings, patience_seconds=30.0) as at:
        with at.database.writing() as session:
            datasets.sweep(session, at.rows, unclaimed_for=_UNCLAIMED_FOR)
        runner.destroy_retired(at)
        while not stopping.is_set() and runner.run_next(at, worker=f"{socket.gethostname()}:{os.getpid()}"):
            pass
