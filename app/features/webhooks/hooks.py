"""Hooks of the `webhooks` feature."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.deletion import admission, history, search_repository
from app.features.overview.endpoints import CountUndelivered
from app.features.webhooks import receiver, repository, service
from lethe.contract.sets import EventKind
from lethe.features.webhooks.contract import WebhookEvent

_WEBHOOK_EVENTS = {
    EventKind.IN_REVIEW: WebhookEvent.IN_REVIEW,
    EventKind.ACCEPTED: WebhookEvent.ACCEPTED,
    EventKind.COMPLETED: WebhookEvent.COMPLETED,
    EventKind.NOTHING_HELD: WebhookEvent.COMPLETED,
    EventKind.REJECTED: WebhookEvent.REJECTED,
    EventKind.CANCELLED: WebhookEvent.CANCELLED,
    EventKind.EXTENDED: WebhookEvent.EXTENDED,
    EventKind.AT_RISK: WebhookEvent.AT_RISK,
    EventKind.OVERDUE: WebhookEvent.OVERDUE,
}


def announce(session: Session, changes: Sequence[history.Change]) -> None:
    """Notify receivers of changes to their requests, except for requests that are damaged or have no receivers."""
    readable = [change for change in changes if not change.request.particulars.is_damaged]
    called = [change for change in readable if change.request.particulars.callback_urls]
    service.announce(session, [_announcement(change) for change in called])


def _announcement(change: history.Change) -> service.Announcement:
    event = _WEBHOOK_EVENTS.get(change.kind)
    return service.Announcement(request=change.request, event=event, status=change.status, at=change.at)


ON_CHANGE: tuple[history.OnChange, ...] = (announce,)
ATTACHED: tuple[search_repository.Attached, ...] = (
    search_repository.Attached(
        keys=repository.payload_keys, drop=repository.drop_ended, is_pending=repository.is_to_be_sent
    ),
)
CALLBACK_URLS: tuple[admission.CheckUrl, ...] = (receiver.check_url,)
UNDELIVERED: tuple[CountUndelivered, ...] = (repository.undelivered,)
