"""The one Celery task: be notified, then do all runs that are due. It carries nothing and returns nothing.

A worker that is told to stop finishes the run in progress and leaves the others to the next worker.
"""

import os
import socket

from app import dispatch, telemetry
from lethe.contract.problems import Unavailable
from worker.celery_app import app, settings, stopping


@app.task(name=dispatch.TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def work() -> None:
    from app import installations  # not before: who only rings knows this module too
    from worker import runner

    try:
        with installations.opened(settings, patience_seconds=30.0, again=True) as installation:
            runner.destroy_unneeded(installation)
            while not stopping.is_set() and runner.run_next(
                installation, worker=f"{socket.gethostname()}:{os.getpid()}"
            ):
                pass
    except Unavailable as error:
        telemetry.logger().error("worker.unavailable", error=error.code)
