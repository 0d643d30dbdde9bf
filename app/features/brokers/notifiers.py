"""Notifier that wakes the workers behind a broker with empty Celery messages."""

from functools import lru_cache
from typing import TYPE_CHECKING

from app import dispatch, telemetry

if TYPE_CHECKING:
    from celery import Celery

TASK = "lethe.work"


class CeleryNotifier:
    """Notifier for the workers behind a broker. Each notification reaches one of the workers."""

    def __init__(self, broker_url: str) -> None:
        self._celery = celery_client(broker_url)

    def wake(self) -> None:
        try:
            self._celery.send_task(TASK, ignore_result=True)
        # The request is stored even if the broker's client raises an error.
        except Exception as error:  # noqa: BLE001
            telemetry.logger().warning("dispatch.notification_failed", error=type(error).__name__)


@lru_cache
def celery_client(broker_url: str) -> "Celery":
    """Return a Celery client used only for notifications without arguments, results or retries."""
    # Installations without a broker need not wait for the import.
    from celery import Celery

    client = Celery("lethe", broker=broker_url)
    client.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_publish_retry=False,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            # This applies to publishing; a consuming worker continues to reconnect.
            "max_retries": 0,
            "socket_connect_timeout": 2,
            "socket_timeout": 3,
            "socket_keepalive": True,
        },
    )
    return client


NOTIFIERS: tuple[dispatch.RingBroker, ...] = (CeleryNotifier,)
