"""The worker of the embedded default: one process beside the gateway, woken through a pipe."""

import os
import signal
import threading

from app import dispatch, installation, telemetry
from app.config import Settings
from worker import process, runner


def main(settings: Settings, *, name: str) -> None:
    """Work until SIGTERM or SIGINT; the run in progress is finished first."""
    telemetry.configure(settings.log_level)
    process.harden()
    stopping = threading.Event()
    bell = dispatch.PipeBell(settings.data_dir)

    def stop(*_: object) -> None:
        stopping.set()
        bell.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    descriptor = bell.listen()
    try:
        with installation.opened(settings) as at:
            runner.destroy_retired(at)
            telemetry.logger().info("worker.started", worker=name)
            while not stopping.is_set():
                if not runner.run_next(at, worker=name):
                    dispatch.wait(descriptor, seconds=settings.poll_seconds)
    finally:
        os.close(descriptor)
