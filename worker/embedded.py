"""Embedded worker: a process on the gateway's host, woken through a pipe."""

import contextlib
import gc
import os
import signal
import threading

from app import config, dispatch, hardening, heartbeat, installations, telemetry, tracing
from app.journal import verification
from app.operations import periodic_jobs
from lethe.contract.problems import Unavailable
from worker import isolated, runner


def main(settings: config.Settings, *, name: str, deletions_only: bool = False) -> None:
    """Process runs until SIGTERM or SIGINT, then finish the run in progress. With `deletions_only`, claim only runs
    that a deletion request is waiting for."""
    telemetry.configure(settings.log_level)
    hardening.ensure()
    gc.freeze()
    isolated.prepare(device=settings.device)
    telemetry.trace_to(settings.otlp_endpoint, service="lethe-worker")
    stopping = threading.Event()
    notifier = dispatch.PipeNotifier(settings.data_dir)

    def stop(*_: object) -> None:
        stopping.set()
        notifier.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    descriptor = notifier.listen()
    try:
        with installations.opened(settings, patience_seconds=30.0) as installation:
            # An unavailable database is logged and tried again before each run.
            with contextlib.suppress(Unavailable):
                periodic_jobs.destroy_orphans(installation)
            verification.verify_at_start(installation)
            heartbeat.Heartbeat(settings.data_dir).start()
            periodic_jobs.PeriodicJobs(settings).start()
            gc.collect()
            gc.freeze()
            gc.enable()
            telemetry.logger().info("worker.started", worker=name)
            while not stopping.is_set():
                if not runner.run_next(installation, worker=name, deletions_only=deletions_only):
                    dispatch.wait(descriptor, seconds=settings.poll_seconds)
    finally:
        os.close(descriptor)
        tracing.close()
