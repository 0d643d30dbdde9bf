"""All SQL about deliveries to receivers."""

import datetime
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.db import bulk, sealed
from app.db.paging import Page, page
from app.db.tables import DeletionRequest, Tenant, WebhookDelivery
from lethe.contract.sets import DeliveryStatus, WebhookEvent

_PENDING: sa.ColumnElement[str] = sa.literal_column("'pending'")
"""In the statement itself: SQLite uses an index of pending deliveries only if it can see that they are."""
_WITHDRAWN = "withdrawn"
_IS_TOLD = WebhookDelivery.status != _WITHDRAWN
"""A condition: the delivery is, was, or will be said to somebody; the rest is only there until the key of its text is
destroyed."""
_LONG_AGO = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


_IS_UNDELIVERED = sa.or_(
    WebhookDelivery.status == DeliveryStatus.DEAD,
    sa.and_(WebhookDelivery.status == DeliveryStatus.PENDING, WebhookDelivery.error.is_not(None)),
)
"""A condition: it did not arrive, and was tried; or will not any more."""


def add(session: Session, rows: Sequence[WebhookDelivery]) -> None:
    bulk.store(session, WebhookDelivery, rows)


def delivery(session: Session, delivery_id: str) -> WebhookDelivery | None:
    return session.scalars(sa.select(WebhookDelivery).where(WebhookDelivery.id == delivery_id, _IS_TOLD)).one_or_none()


def deliveries(
    session: Session,
    *,
    status: str | None,
    undelivered: bool,
    request_id: str | None,
    of_discreet_until: datetime.datetime | None,
    limit: int,
    cursor: str | None,
) -> Page[WebhookDelivery]:
    """Newest first. `of_discreet_until`: only what receivers of discreet requests could have got by this time."""
    query = sa.select(WebhookDelivery).where(_IS_TOLD)
    if status is not None:
        query = query.where(WebhookDelivery.status == status)
    if undelivered:
        query = query.where(_IS_UNDELIVERED)
    if request_id is not None:
        query = query.where(WebhookDelivery.request_id == request_id)
    if of_discreet_until is not None:
        query = _seen(query, of_discreet_until)
    return page(session, query, WebhookDelivery.created_at, WebhookDelivery.id, limit=limit, cursor=cursor)


def undelivered(session: Session, *, at_most: int) -> dict[str, int]:
    """Number of deliveries that did not arrive, by status, each counted up to `at_most`."""
    counts = []
    for status in (DeliveryStatus.DEAD, DeliveryStatus.PENDING):
        these = sa.select(WebhookDelivery.id).where(WebhookDelivery.status == status, _IS_UNDELIVERED)
        some = these.limit(at_most).subquery()
        counts.append(sa.select(sa.func.count()).select_from(some).scalar_subquery().label(status.value))
    return {name: count for name, count in session.execute(sa.select(*counts)).mappings().one().items() if count}


def is_seen(session: Session, delivery: WebhookDelivery, *, at: datetime.datetime) -> bool:
    """Return True if it is one that receivers of discreet requests could have got by this time."""
    query = _seen(sa.select(WebhookDelivery).where(WebhookDelivery.id == delivery.id), at)
    return session.scalars(query).one_or_none() is not None


def _seen(query: sa.Select[WebhookDelivery], at: datetime.datetime) -> sa.Select[WebhookDelivery]:
    query = query.join(DeletionRequest, DeletionRequest.id == WebhookDelivery.request_id)
    return query.where(DeletionRequest.discreet, WebhookDelivery.created_at <= at)


def planned(session: Session, *, request_ids: Collection[str], event: str) -> set[str]:
    """Those of the requests of which somebody is told that, or was, or will be."""
    query = sa.select(WebhookDelivery.request_id).where(
        WebhookDelivery.request_id.in_(request_ids), WebhookDelivery.event == event, _IS_TOLD
    )
    return set(session.scalars(query))


def drop_planned(session: Session, *, request_ids: Collection[str], since: datetime.datetime | None = None) -> None:
    """Tell nobody any more that these requests are completed; with `since`: nothing that they were to hear from then
    on. It counts as ended so long ago that it is purged next, its key before it (`ended`)."""
    what = WebhookDelivery.event == WebhookEvent.COMPLETED if since is None else WebhookDelivery.created_at >= since
    planned = sa.and_(WebhookDelivery.request_id.in_(request_ids), what, WebhookDelivery.attempts == 0)
    withdrawn = sa.update(WebhookDelivery).where(planned, WebhookDelivery.status == DeliveryStatus.PENDING)
    session.execute(withdrawn.values(status=_WITHDRAWN, ended_at=_LONG_AGO))


def last_notified(session: Session, *, request_id: str, url: str, until: datetime.datetime) -> WebhookDelivery | None:
    """The last delivery to this receiver about a request, of all that it may know by then."""
    query = (
        sa.select(WebhookDelivery)
        .where(
            WebhookDelivery.request_id == request_id,
            sealed.refers_to(session, WebhookDelivery.receiver_ref, url),
            WebhookDelivery.created_at <= until,
            _IS_TOLD,
        )
        .order_by(WebhookDelivery.created_at.desc(), WebhookDelivery.id.desc())
    )
    return session.scalars(query.limit(1)).one_or_none()


def is_any_due(session: Session, *, at: datetime.datetime, besides: Collection[str]) -> bool:
    """Return True if anything is to be sent, to other hosts than those `besides`."""
    return session.scalar(sa.select(sa.exists().where(*_due(at, besides)))) is True


Due = tuple[WebhookDelivery, str | None, int, datetime.datetime | None, datetime.datetime | None]


def due(session: Session, *, at: datetime.datetime, besides: Collection[str], limit: int) -> list[Due]:
    """The deliveries that are due, the one that waits longest first: each with the source of its request, the
    generation of its tenant's secret and when that was rotated, and when what goes to the same receiver about the same
    request before is tried."""
    earlier = aliased(WebhookDelivery)
    waits_for = (
        sa.select(sa.func.max(earlier.next_attempt_at))
        .where(
            earlier.request_id == WebhookDelivery.request_id,
            earlier.receiver_ref == WebhookDelivery.receiver_ref,
            earlier.status == _PENDING,
            sa.tuple_(earlier.created_at, earlier.id) < sa.tuple_(WebhookDelivery.created_at, WebhookDelivery.id),
        )
        .scalar_subquery()
    )
    query = (
        sa.select(
            WebhookDelivery, DeletionRequest.source, Tenant.webhook_generation, Tenant.webhook_rotated_at, waits_for
        )
        .join(Tenant, Tenant.id == WebhookDelivery.tenant_id)
        .join(DeletionRequest, DeletionRequest.id == WebhookDelivery.request_id)
        .where(*_due(at, besides))
        .order_by(WebhookDelivery.next_attempt_at)
        .limit(limit)
    )
    return [
        (delivery, source, generation, rotated_at, tried_at)
        for delivery, source, generation, rotated_at, tried_at in session.execute(query)
    ]


def _due(at: datetime.datetime, besides: Collection[str]) -> list[sa.ColumnElement[bool]]:
    where = [WebhookDelivery.status == _PENDING, WebhookDelivery.next_attempt_at <= at]
    return [*where, WebhookDelivery.host.not_in(sorted(besides))] if besides else where


def put_off(session: Session, *, request_id: str, url: str, since: datetime.datetime, until: datetime.datetime) -> None:
    """Try what waited until `since` for an earlier delivery at `until`, or as soon as its receiver may know of it."""
    session.execute(
        sa.update(WebhookDelivery)
        .where(
            WebhookDelivery.request_id == request_id,
            sealed.refers_to(session, WebhookDelivery.receiver_ref, url),
            WebhookDelivery.status == _PENDING,
            WebhookDelivery.next_attempt_at == since,
        )
        .values(next_attempt_at=sa.case((WebhookDelivery.created_at > until, WebhookDelivery.created_at), else_=until)),
        execution_options={"synchronize_session": False},
    )


def end_all(session: Session, *, tenant_id: str, url: str, status: str, error: str, at: datetime.datetime) -> None:
    """End whatever is still to be sent to a receiver by a tenant. What it may not know of yet is sent in its time: that
    nothing came then would tell that it was there before."""
    session.execute(
        sa.update(WebhookDelivery)
        .where(
            WebhookDelivery.tenant_id == tenant_id,
            sealed.refers_to(session, WebhookDelivery.receiver_ref, url),
            WebhookDelivery.status == _PENDING,
            WebhookDelivery.created_at <= at,
        )
        .values(status=status, error=error, ended_at=at),
        execution_options={"synchronize_session": False},
    )


def ended(session: Session, *, before: datetime.datetime, limit: int) -> list[WebhookDelivery]:
    """The deliveries that ended before, the oldest `limit` at most."""
    query = sa.select(WebhookDelivery).where(WebhookDelivery.ended_at < before)
    return list(session.scalars(query.order_by(WebhookDelivery.ended_at).limit(limit)))


def ended_so(
    session: Session, *, status: str, request_id: str | None, ended_before: datetime.datetime | None, limit: int
) -> list[WebhookDelivery]:
    """The deliveries of one status, which is not pending, the oldest `limit` at most."""
    query = sa.select(WebhookDelivery).where(WebhookDelivery.status == status)
    if request_id is not None:
        query = query.where(WebhookDelivery.request_id == request_id)
    if ended_before is not None:
        query = query.where(WebhookDelivery.ended_at < ended_before)
    return list(session.scalars(query.order_by(WebhookDelivery.created_at, WebhookDelivery.id).limit(limit)))


def drop(session: Session, *, delivery_ids: Collection[str]) -> None:
    """Drop these, but for those that are sent again."""
    these = WebhookDelivery.id.in_(delivery_ids)
    session.execute(sa.delete(WebhookDelivery).where(these, WebhookDelivery.ended_at.is_not(None)))
