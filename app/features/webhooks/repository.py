"""SQL queries about deliveries to receivers."""

import datetime
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.db import bulk, now, sealed, tables
from app.features.webhooks.tables import WebhookDelivery
from lethe.features.webhooks.contract import DeliveryStatus, WebhookEvent

_PENDING: sa.ColumnElement[str] = sa.literal_column("'pending'")
"""Literal value, because SQLite uses the partial index on pending deliveries only if the statement contains it."""
_WITHDRAWN = "withdrawn"
_IS_VISIBLE = WebhookDelivery.status != _WITHDRAWN
"""Condition that a delivery was or will be sent. Withdrawn deliveries remain until their keys are destroyed."""
_LONG_AGO = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _is_undelivered(session: Session) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a delivery created by now has not reached its receiver: it is pending (attempted or
    not) or was abandoned."""
    statuses = (DeliveryStatus.DEAD, DeliveryStatus.PENDING)
    return sa.and_(WebhookDelivery.status.in_(statuses), WebhookDelivery.created_at <= now(session))


def add(session: Session, rows: Sequence[WebhookDelivery]) -> None:
    bulk.store(session, WebhookDelivery, rows)


def delivery(session: Session, delivery_id: str) -> WebhookDelivery | None:
    return session.scalars(
        sa.select(WebhookDelivery).where(WebhookDelivery.id == delivery_id, _IS_VISIBLE)
    ).one_or_none()


def deliveries(
    session: Session,
    *,
    status: str | None,
    undelivered: bool,
    request_id: str | None,
    of_discreet_until: datetime.datetime | None,
    limit: int,
    cursor: str | None,
) -> bulk.Page[WebhookDelivery]:
    """Return a page of deliveries, newest first; with `of_discreet_until`, only deliveries about discreet requests that
    receivers could have received by then."""
    query = sa.select(WebhookDelivery).where(_IS_VISIBLE)
    if status is not None:
        query = query.where(WebhookDelivery.status == status)
    if undelivered:
        query = query.where(_is_undelivered(session))
    if request_id is not None:
        query = query.where(WebhookDelivery.request_id == request_id)
    if of_discreet_until is not None:
        query = _seen(query, of_discreet_until)
    return bulk.page(session, query, WebhookDelivery.created_at, WebhookDelivery.id, limit=limit, cursor=cursor)


def undelivered(session: Session, *, at_most: int) -> dict[str, int]:
    """Return the number of undelivered deliveries in each status, each counted up to `at_most`."""
    counts = []
    for status in (DeliveryStatus.DEAD, DeliveryStatus.PENDING):
        rows = sa.select(WebhookDelivery.id).where(WebhookDelivery.status == status, _is_undelivered(session))
        sample = rows.limit(at_most).subquery()
        counts.append(sa.select(sa.func.count()).select_from(sample).scalar_subquery().label(status.value))
    return {name: count for name, count in session.execute(sa.select(*counts)).mappings().one().items() if count}


def is_seen(session: Session, delivery: WebhookDelivery, *, at: datetime.datetime) -> bool:
    """Return True if the delivery is about a discreet request and its receiver could have received it by `at`."""
    query = _seen(sa.select(WebhookDelivery).where(WebhookDelivery.id == delivery.id), at)
    return session.scalars(query).one_or_none() is not None


def _seen(query: sa.Select[WebhookDelivery], at: datetime.datetime) -> sa.Select[WebhookDelivery]:
    query = query.join(tables.DeletionRequest, tables.DeletionRequest.id == WebhookDelivery.request_id)
    is_for_receivers = WebhookDelivery.event.not_like("system_task.%")
    return query.where(tables.DeletionRequest.discreet, WebhookDelivery.created_at <= at, is_for_receivers)


def planned(session: Session, *, request_ids: Collection[str], event: str) -> set[str]:
    """Return the ids of requests that have a delivery of this event, whether sent or still to be sent."""
    query = sa.select(WebhookDelivery.request_id).where(
        WebhookDelivery.request_id.in_(request_ids), WebhookDelivery.event == event, _IS_VISIBLE
    )
    return set(session.scalars(query))


def drop_planned(
    session: Session,
    *,
    request_ids: Collection[str],
    event: str = WebhookEvent.COMPLETED,
    since: datetime.datetime = _LONG_AGO,
) -> None:
    """Withdraw the unsent deliveries of `event` about these requests, if planned for `since` or later. They are marked
    as ended long ago, so that the next purge destroys their keys and deletes them (`ended`)."""
    selected = sa.and_(WebhookDelivery.event == event, WebhookDelivery.created_at >= since)
    planned = sa.and_(WebhookDelivery.request_id.in_(request_ids), selected, WebhookDelivery.attempts == 0)
    withdrawn = sa.update(WebhookDelivery).where(planned, WebhookDelivery.status == DeliveryStatus.PENDING)
    session.execute(withdrawn.values(status=_WITHDRAWN, ended_at=_LONG_AGO))


def last_notified(session: Session, *, request_id: str, url: str, until: datetime.datetime) -> WebhookDelivery | None:
    """Return the last delivery to this receiver about a request, as of `until`; None if there is none."""
    query = (
        sa.select(WebhookDelivery)
        .where(
            WebhookDelivery.request_id == request_id,
            sealed.refers_to(session, WebhookDelivery.receiver_ref, url),
            WebhookDelivery.created_at <= until,
            _IS_VISIBLE,
        )
        .order_by(WebhookDelivery.created_at.desc(), WebhookDelivery.id.desc())
    )
    return session.scalars(query.limit(1)).one_or_none()


def is_any_due(
    session: Session, *, at: datetime.datetime, besides: Collection[str], besides_tenants: Collection[str] = ()
) -> bool:
    """Return True if a delivery is due to a host not in `besides`, from a tenant not in `besides_tenants`."""
    return session.scalar(sa.select(sa.exists().where(*_due(at, besides, besides_tenants)))) is True


Due = tuple[WebhookDelivery, str | None, int, datetime.datetime | None, datetime.datetime | None]


def due(
    session: Session,
    *,
    at: datetime.datetime,
    besides: Collection[str],
    besides_tenants: Collection[str] = (),
    limit: int,
) -> list[Due]:
    """Return at most `limit` due deliveries, as in `is_any_due`, longest-waiting first. Each comes with the source of
    its request, its tenant's secret generation and time of rotation, and when an earlier delivery to the same receiver
    about the same request is next attempted (None if there is none)."""
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
            WebhookDelivery,
            tables.DeletionRequest.source,
            tables.Tenant.webhook_generation,
            tables.Tenant.webhook_rotated_at,
            waits_for,
        )
        .join(tables.Tenant, tables.Tenant.id == WebhookDelivery.tenant_id)
        .join(tables.DeletionRequest, tables.DeletionRequest.id == WebhookDelivery.request_id)
        .where(*_due(at, besides, besides_tenants))
        .order_by(WebhookDelivery.next_attempt_at)
        .limit(limit)
    )
    return [
        (delivery, source, generation, rotated_at, tried_at)
        for delivery, source, generation, rotated_at, tried_at in session.execute(query)
    ]


def _due(at: datetime.datetime, hosts: Collection[str], tenant_ids: Collection[str]) -> list[sa.ColumnElement[bool]]:
    where = [WebhookDelivery.status == _PENDING, WebhookDelivery.next_attempt_at <= at]
    if hosts:
        where.append(WebhookDelivery.host.not_in(sorted(hosts)))
    return [*where, WebhookDelivery.tenant_id.not_in(sorted(tenant_ids))] if tenant_ids else where


def put_off(session: Session, *, request_id: str, url: str, since: datetime.datetime, until: datetime.datetime) -> None:
    """Postpone a receiver's deliveries that were waiting until `since` for an earlier delivery. They now wait until
    `until`, or until the receiver may know of them, whichever is later."""
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
    """End all of a tenant's pending deliveries to a receiver. Deliveries that the receiver may not know of yet are
    still sent when due: their absence would reveal that they had been planned."""
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
    """Return at most `limit` deliveries that ended before `before`, oldest first."""
    query = sa.select(WebhookDelivery).where(WebhookDelivery.ended_at < before)
    return list(session.scalars(query.order_by(WebhookDelivery.ended_at).limit(limit)))


def ended_so(
    session: Session, *, status: str, request_id: str | None, ended_before: datetime.datetime | None, limit: int
) -> list[WebhookDelivery]:
    """Return at most `limit` deliveries that ended with this status, oldest first."""
    query = sa.select(WebhookDelivery).where(WebhookDelivery.status == status)
    if request_id is not None:
        query = query.where(WebhookDelivery.request_id == request_id)
    if ended_before is not None:
        query = query.where(WebhookDelivery.ended_at < ended_before)
    return list(session.scalars(query.order_by(WebhookDelivery.created_at, WebhookDelivery.id).limit(limit)))


def drop(session: Session, *, delivery_ids: Collection[str]) -> None:
    """Delete deliveries, except those being resent."""
    is_ended = WebhookDelivery.ended_at.is_not(None)
    session.execute(sa.delete(WebhookDelivery).where(WebhookDelivery.id.in_(delivery_ids), is_ended))


def payload_keys(session: Session, request_ids: Collection[str]) -> dict[str, list[str]]:
    """Return the keys of the payloads about these requests, grouped by request id."""
    query = sa.select(WebhookDelivery.request_id, WebhookDelivery.letter)
    keys: dict[str, list[str]] = {}
    for request_id, payload in session.execute(query.where(WebhookDelivery.request_id.in_(request_ids))):
        if payload.key:
            keys.setdefault(request_id, []).append(payload.key)
    return keys


def drop_ended(session: Session, request_ids: Collection[str]) -> None:
    """Delete the ended deliveries about these requests."""
    ended = sa.and_(WebhookDelivery.request_id.in_(request_ids), WebhookDelivery.ended_at.is_not(None))
    session.execute(sa.delete(WebhookDelivery).where(ended))


def is_to_be_sent(request: type[tables.DeletionRequest]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a delivery about `request` is pending."""
    return sa.exists().where(WebhookDelivery.request_id == request.id, WebhookDelivery.status == DeliveryStatus.PENDING)
