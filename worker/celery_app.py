"""The Celery application of a worker: `celery -A worker.celery_app worker --pool threads --concurrency 1`.

What only a worker needs is imported when one begins: a beat, which rings, and a health check are there in a second.
"""

import threading
from typing import Any

from celery.signals import setup_logging, worker_init, worker_shutting_down
from pydantic import ValidationError

from app import dispatch, hardening, heartbeat, telemetry
from app.config import Settings
from lethe.contract.problems import Problem

try:
    settings = Settings()
except ValidationError as error:
    faults = [f"LETHE_{fault['loc'][0]!s}".upper() + f" {fault['msg']}" for fault in error.errors()]
    raise SystemExit(f"settings_invalid: {'; '.join(faults)}") from None
if settings.broker_url is None:
    raise SystemExit("LETHE_BROKER_URL is not set: a Celery worker needs a broker; without one, use 'lethe up'.")
telemetry.configure(settings.log_level)  # Celery warns before its first signal
app = dispatch.celery_client(settings.broker_url.get_secret_value())
app.conf.worker_consumer = "worker.broker:Consumer"
app.conf.worker_enable_remote_control = False  # by which a message could end a worker
if settings.broker_url.get_secret_value().startswith(("redis://", "rediss://")):
    app.conf.broker_transport = "worker.broker:RedisTransport"
stopping = threading.Event()
app.conf.imports = ["worker.tasks"]
app.conf.beat_schedule = {"sweep": {"task": dispatch.TASK, "schedule": settings.poll_seconds * 10}}


@setup_logging.connect  # type: ignore[untyped-decorator]
def _logs_are_set_up(**_: object) -> None:
    """Receive the signal: Celery then leaves out its own set-up, which writes whatever it is given."""


@worker_init.connect  # type: ignore[untyped-decorator]
def _configure(sender: Any, **_: object) -> None:
    sender.quiet = True  # its banner is no log line
    hardening.ensure()
    from app import installations
    from app.backup import verification
    from app.operations import periodic_jobs
    from worker import isolated

    try:
        with installations.opened(
            settings, patience_seconds=30.0
        ) as installation:  # a worker that may not is not started
            verification.verify_at_start(installation)
    except Problem as error:
        raise SystemExit(f"error: {error.code}: {error.detail}") from None

    isolated.prepare(device=settings.device)
    telemetry.trace_to(settings.otlp_endpoint, service="lethe-worker")
    heartbeat.Heartbeat(settings.data_dir).start()
    periodic_jobs.PeriodicJobs(settings).start()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop(**_: object) -> None:
    stopping.set()
