"""A worker's Celery application, which commands find as `worker.celery_app`.

Modules that only a worker needs are imported when it starts, so that beat or a health check starts within a second.
"""

import threading
from typing import Any

from celery.signals import setup_logging, worker_init, worker_shutting_down
from pydantic import ValidationError

from app import config, hardening, heartbeat, telemetry
from app.features.brokers import notifiers
from lethe.contract.problems import Problem

try:
    settings = config.Settings()
except ValidationError as error:
    faults = [f"LETHE_{fault['loc'][0]!s}".upper() + f" {fault['msg']}" for fault in error.errors()]
    raise SystemExit(f"settings_invalid: {'; '.join(faults)}") from None
if settings.broker_url is None:
    raise SystemExit("LETHE_BROKER_URL is not set: a Celery worker needs a broker; without one, use 'lethe up'.")
# Set up logging before Celery's first signal, because Celery logs warnings earlier.
telemetry.configure(settings.log_level)
app = notifiers.celery_client(settings.broker_url.get_secret_value())
app.conf.worker_consumer = "worker.features.brokers.consumer:Consumer"
# A remote-control message could end a worker.
app.conf.worker_enable_remote_control = False
if settings.broker_url.get_secret_value().startswith(("redis://", "rediss://")):
    app.conf.broker_transport = "worker.features.brokers.consumer:RedisTransport"
stopping = threading.Event()
app.conf.imports = ["worker.features.brokers.tasks"]
app.conf.beat_schedule = {"sweep": {"task": notifiers.TASK, "schedule": settings.poll_seconds * 10}}


@setup_logging.connect  # type: ignore[untyped-decorator]
def _logs_are_set_up(**_: object) -> None:
    """Handle Celery's `setup_logging` signal, so that Celery skips its own setup, which would log message bodies."""


@worker_init.connect  # type: ignore[untyped-decorator]
def _configure(sender: Any, **_: object) -> None:
    # Suppress Celery's banner, which is not a log line.
    sender.quiet = True
    hardening.ensure()
    from app import installations
    from app.journal import verification
    from app.operations import periodic_jobs
    from worker import isolated

    try:
        # A worker that cannot open the installation must not start.
        with installations.opened(settings, patience_seconds=30.0) as installation:
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
