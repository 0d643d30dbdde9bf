"""Deliveries of webhooks, sent once more if need be; and the secret that signs them."""

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import Query, Response

from app.api import overview, problems, webhook_deliveries
from app.dashboard import pages
from app.dashboard.advice import delivery_advice
from app.dashboard.languages import gettext
from app.dashboard.lists import Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from app.dashboard.wording import state
from lethe.contract.fields import PageOut
from lethe.contract.problems import Problem
from lethe.contract.sets import DeliveryStatus
from lethe.contract.webhook_deliveries import DeliveryOut, RedeliveriesIn, SecretRotationIn

router = pages.new_router()

_AT_ONCE = 1000
_ENDED = {"undelivered": DeliveryStatus.DEAD} | {
    one.value: one for one in (DeliveryStatus.DEAD, DeliveryStatus.GONE, DeliveryStatus.DELIVERED)
}
"""The status of those deliveries that a filter shows and that can be sent again."""
RequestId = Annotated[str, Query(pattern="^[a-z0-9_]{0,40}$")]


@router.get("/deliveries")
def list_deliveries(
    context: TheContext,
    place: ThePlace,
    status: DeliveryStatus | Literal["", "undelivered"] = "",
    request_id: RequestId = "",
    replayed: Annotated[int | None, Query(ge=0)] = None,
    more: bool = False,
) -> Response:
    """A page of them, newest first. `replayed`: how many were just sent again; `more`: others are left."""
    found = context.ask(
        webhook_deliveries.list_webhook_deliveries,
        status=None if status == "undelivered" else status or None,
        undelivered=status == "undelivered",
        request_id=request_id or None,
        limit=place.size,
        cursor=place.cursor,
    )
    query = {name: value for name, value in {"status": str(status), "request_id": request_id}.items() if value}
    statuses = [
        ("", gettext("Any")),
        ("undelivered", gettext("Undelivered")),
        *((one.value, state(one).label) for one in DeliveryStatus),
    ]
    return context.page(
        "deliveries/list.html",
        found=found,
        query=query,
        place=place,
        extent=place.extent(found, "delivery", "deliveries", total=_total(context, found, query, place)),
        statuses=statuses,
        may_rotate=context.may(webhook_deliveries.get_webhook_secret),
        may_replay=status in _ENDED and context.may(webhook_deliveries.replay_webhook_deliveries),
        at_once=_AT_ONCE,
        why={one.error: delivery_advice(one.error) for one in found.items if one.error},
        replayed=replayed,
        more=more,
    )


@router.post("/deliveries/send-again")
def replay_deliveries(
    context: TheContext, status: DeliveryStatus | Literal["undelivered"], request_id: RequestId = ""
) -> Response:
    """Send again what a filtered list shows, as far as it is over."""
    body = checked(RedeliveriesIn, status=_ENDED.get(status, status), request_id=request_id or None, limit=_AT_ONCE)
    done = context.ask(webhook_deliveries.replay_webhook_deliveries, body=body)
    back = {"status": str(status)} | ({"request_id": request_id} if request_id else {})
    return pages.see(f"{ROOT}/deliveries", **back, replayed=done.replayed, more=str(done.more).lower())


@router.get("/deliveries/{delivery_id}")
def show_delivery(context: TheContext, delivery_id: str, done: Literal["", "replayed"] = "") -> Response:
    """Show how a delivery stands, and, for admins, what is sent where."""
    delivery = context.ask(webhook_deliveries.get_webhook_delivery, delivery_id=delivery_id)
    is_over = delivery.status is not DeliveryStatus.PENDING
    may_replay = is_over and context.may(webhook_deliveries.replay_webhook_delivery)
    return context.page(
        "deliveries/one.html",
        delivery=delivery,
        why=delivery_advice(delivery.error) if delivery.error else None,
        body=_legible(delivery.body),
        may_replay=may_replay,
        done=done,
    )


@router.post("/deliveries/{delivery_id}/replay")
def replay_delivery(context: TheContext, delivery_id: str) -> Response:
    """Send it again."""
    context.ask(webhook_deliveries.replay_webhook_delivery, delivery_id=delivery_id)
    return pages.see(f"{ROOT}/deliveries/{delivery_id}", done="replayed")


@router.get("/webhook-secret")
def show_secret(context: TheContext, done: Literal["", "rotated"] = "") -> Response:
    """Show the secret that receivers verify with."""
    return context.page("deliveries/secret.html", secret=context.ask(_SECRET), done=done, error=None)


@router.post("/webhook-secret/rotate")
def rotate_secret(context: TheContext, form: Form) -> Response:
    """Replace the secret that the page showed; one that was replaced meanwhile stays."""
    generation = text(form, "generation")
    body = checked(SecretRotationIn, generation=int(generation) if generation.isdecimal() else generation)
    try:
        context.ask(webhook_deliveries.rotate_webhook_secret, body=body)
    except Problem as error:
        status = problems.status_of(type(error))
        return context.page("deliveries/secret.html", status=status, secret=context.ask(_SECRET), done="", error=error)
    return pages.see(f"{ROOT}/webhook-secret", done="rotated")


_SECRET = webhook_deliveries.get_webhook_secret


def _total(context: RequestContext, found: PageOut[DeliveryOut], query: Mapping[str, str], place: Place) -> int | None:
    """Number of deliveries on all pages, where the overview counts them: the undelivered ones."""
    is_counted = query == {"status": "undelivered"} and not place.has_all(found) and context.may(overview.get_overview)
    return sum(context.ask(overview.get_overview).undelivered.values()) if is_counted else None


def _legible(body: str | None) -> str | None:
    """With its fields on lines of their own, where it is JSON."""
    if body is None:
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except ValueError:
        return body
