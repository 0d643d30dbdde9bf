"""Celery task: wake up and perform all due runs. It has no arguments and no result.

A worker that is asked to stop finishes its current run and leaves the remaining runs to the next worker.
"""

import os
import socket

from app import telemetry
from app.features.brokers import notifiers
from lethe.contract.problems import Unavailable
from worker.features.brokers.application import app, settings, stopping


@app.task(name=notifiers.TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def work() -> None:
    # Imported late, because a beat imports this module only to send the task.
    from app import installations
    from app.operations import periodic_jobs
    from worker import runner

    try:
        with installations.opened(settings, patience_seconds=30.0, again=True) as installation:
            periodic_jobs.destroy_orphans(installation)
            while not stopping.is_set() and runner.run_next(
                installation, worker=f"{socket.gethostname()}:{os.getpid()}"
            ):
                pass
    except Unavailable as error:
        telemetry.logger().error("worker.unavailable", error=error.code)
