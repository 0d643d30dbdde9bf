"""A worker's Celery application: `celery -A worker.celery_app worker --pool threads --concurrency 1`."""

from worker.features.brokers.application import app  # type: ignore[import-not-found, import-untyped, unused-ignore]

__all__ = ["app"]
