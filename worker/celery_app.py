"""The Celery application of a worker: `celery -A worker.celery_app worker --pool solo`."""

from celery.signals import worker_init

from app import dispatch, telemetry
from app.config import Settings
from worker import process

settings = Settings()
if settings.broker_url is None:
    raise SystemExit("LETHE_BROKER_URL is not set: a Celery worker needs a broker; without one, use 'lethe up'.")
app = dispatch.celery_client(settings.broker_url.get_secret_value())
app.conf.imports = ["worker.tasks"]
app.conf.beat_schedule = {"sweep": {"task": dispatch.TASK, "schedule": settings.poll_seconds * 10}}


@worker_init.connect  # type: ignore[untyped-decorator]
def _configure(**_: object) -> None:
    telemetry.configure(settings.log_level)
    process.harden()
