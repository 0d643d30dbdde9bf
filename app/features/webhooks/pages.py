"""Pages about webhook deliveries, which can be resent, and about the secret that signs them."""

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import Query, Response

from app.features.desk import forms, glossary, lists, menu, rendering as pages, wording
from app.features.desk.languages import gettext, marked
from app.features.desk.rendering import ROOT
from app.features.desk.request_context import Form, RequestContext, TheContext
from app.features.overview import endpoints as overview
from app.features.webhooks import endpoints as webhook_deliveries
from lethe.contract import fields, problems
from lethe.features.webhooks.contract import DeliveryOut, DeliveryStatus, RedeliveriesIn, SecretRotationIn

router = pages.new_router()

_AT_ONCE = 1000
_ENDED = {"undelivered": DeliveryStatus.DEAD} | {
    status.value: status for status in (DeliveryStatus.DEAD, DeliveryStatus.GONE, DeliveryStatus.DELIVERED)
}
"""Status of the deliveries that can be resent, by the value of the filter that shows them."""
RequestId = Annotated[str, Query(pattern="^[a-z0-9_]{0,40}$")]


@router.get("/deliveries")
def list_deliveries(
    context: TheContext,
    place: lists.ThePlace,
    status: DeliveryStatus | Literal["", "undelivered"] = "",
    request_id: RequestId = "",
    replayed: Annotated[int | None, Query(ge=0)] = None,
    more: bool = False,
) -> Response:
    """List deliveries, newest first. `replayed`: number just resent. `more`: True if more remain to be resent."""
    page = context.ask(
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
        *((value.value, wording.state(value).label) for value in DeliveryStatus),
    ]
    return context.page(
        "deliveries/list.html",
        found=page,
        query=query,
        place=place,
        extent=place.extent(page, "delivery", "deliveries", total=_total(context, page, query, place)),
        statuses=statuses,
        may_rotate=context.may(webhook_deliveries.get_webhook_secret),
        may_replay=status in _ENDED and context.may(webhook_deliveries.replay_webhook_deliveries),
        at_once=_AT_ONCE,
        why={delivery.error: glossary.delivery_advice(delivery.error) for delivery in page.items if delivery.error},
        replayed=replayed,
        more=more,
    )


@router.post("/deliveries/send-again")
def replay_deliveries(
    context: TheContext, status: DeliveryStatus | Literal["undelivered"], request_id: RequestId = ""
) -> Response:
    """Resend all ended deliveries that match a list's filter."""
    body = forms.checked(
        RedeliveriesIn, status=_ENDED.get(status, status), request_id=request_id or None, limit=_AT_ONCE
    )
    done = context.ask(webhook_deliveries.replay_webhook_deliveries, body=body)
    back = {"status": str(status)} | ({"request_id": request_id} if request_id else {})
    return pages.see(f"{ROOT}/deliveries", **back, replayed=done.replayed, more=str(done.more).lower())


@router.get("/deliveries/{delivery_id}")
def show_delivery(context: TheContext, delivery_id: str, done: Literal["", "replayed"] = "") -> Response:
    """Show the status of a delivery and, to admins, its body and URL."""
    delivery = context.ask(webhook_deliveries.get_webhook_delivery, delivery_id=delivery_id)
    is_over = delivery.status is not DeliveryStatus.PENDING
    may_replay = is_over and context.may(webhook_deliveries.replay_webhook_delivery)
    return context.page(
        "deliveries/one.html",
        delivery=delivery,
        why=glossary.delivery_advice(delivery.error) if delivery.error else None,
        body=_legible(delivery.body),
        may_replay=may_replay,
        done=done,
    )


@router.post("/deliveries/{delivery_id}/replay")
def replay_delivery(context: TheContext, delivery_id: str) -> Response:
    """Send a delivery again."""
    context.ask(webhook_deliveries.replay_webhook_delivery, delivery_id=delivery_id)
    return pages.see(f"{ROOT}/deliveries/{delivery_id}", done="replayed")


@router.get("/webhook-secret")
def show_secret(context: TheContext, done: Literal["", "rotated"] = "") -> Response:
    """Show the secret that receivers use to verify deliveries."""
    return context.page("deliveries/secret.html", secret=context.ask(_SECRET), done=done, error=None)


@router.post("/webhook-secret/rotate")
def rotate_secret(context: TheContext, form: Form) -> Response:
    """Rotate the secret that the page showed; do nothing if it has been rotated since."""
    generation = forms.text(form, "generation")
    body = forms.checked(SecretRotationIn, generation=int(generation) if generation.isdecimal() else generation)
    try:
        context.ask(webhook_deliveries.rotate_webhook_secret, body=body)
    except problems.Problem as error:
        return context.page("deliveries/secret.html", secret=context.ask(_SECRET), done="", error=error)
    return pages.see(f"{ROOT}/webhook-secret", done="rotated")


_SECRET = webhook_deliveries.get_webhook_secret


def _total(
    context: RequestContext, page: fields.PageOut[DeliveryOut], query: Mapping[str, str], place: lists.PagePosition
) -> int | None:
    """Return the total for the list of undelivered deliveries, from the overview; None if it is not available."""
    is_counted = query == {"status": "undelivered"} and not place.has_all(page) and context.may(overview.get_overview)
    return sum(context.ask(overview.get_overview).undelivered.values()) if is_counted else None


def _legible(body: str | None) -> str | None:
    """Return a JSON body with one field per line, and any other body unchanged."""
    if body is None:
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except ValueError:
        return body


PAGES = (router,)
MENU = (
    menu.MenuEntry(
        110, marked("Deliveries"), f"{ROOT}/deliveries", webhook_deliveries.list_webhook_deliveries, "settings"
    ),
)
