"""Pages about public networks."""

import json
from typing import Literal

from fastapi import Response
from starlette.datastructures import UploadFile

from app.features.desk import forms, languages, lists, menu, rendering as pages, request_context
from app.features.networks import endpoints as networks
from lethe.contract.problems import FieldError, InputInvalid, Problem

router = pages.new_router()

_TEXT_FIELDS = ("name", "licence", "provenance", "dp_ledger")
Done = Literal["", "made"]
Deleted = Literal["", "deleted"]


@router.get("/networks")
def list_networks(context: request_context.TheContext, place: lists.ThePlace, done: Deleted = "") -> Response:
    """Show the networks, newest first, and the form to register one."""
    return _listed(context, place=place, done=done, fields=dict.fromkeys(_TEXT_FIELDS, ""))


@router.post("/networks")
def upload_network(context: request_context.TheContext, form: request_context.Form) -> Response:
    """Register a network and show it, or show why it was refused."""
    context.require(networks.create_network)
    fields = {name: forms.text(form, name) for name in _TEXT_FIELDS}
    try:
        for name in _TEXT_FIELDS[:-1]:
            if not fields[name]:
                raise InputInvalid(
                    languages.gettext("Something is not filled in."),
                    [FieldError(name, languages.gettext("expected some text"))],
                )
        answer = context.ask(
            networks.create_network, file=_file(form.get("file")), **fields | {"dp_ledger": fields["dp_ledger"] or None}
        )
    except Problem as error:
        return _listed(context, place=lists.PagePosition(), fields=fields, error=error)
    return pages.see(f"{pages.ROOT}/networks/{json.loads(bytes(answer.body))['id']}", done="made")


@router.get("/networks/{network_id}")
def show_network(context: request_context.TheContext, network_id: str, done: Done = "") -> Response:
    """Show the inputs, outputs and provenance of a network."""
    network = context.ask(networks.get_network, network_id=network_id)
    return context.page(
        "networks/one.html", network=network, done=done, may_delete=context.may(networks.delete_network)
    )


@router.post("/networks/{network_id}/delete")
def delete_network(context: request_context.TheContext, network_id: str) -> Response:
    """Delete a network."""
    context.ask(networks.delete_network, network_id=network_id)
    return pages.see(f"{pages.ROOT}/networks", done="deleted")


def _listed(
    context: request_context.RequestContext,
    *,
    place: lists.PagePosition,
    fields: dict[str, str],
    done: Deleted = "",
    error: Problem | None = None,
) -> Response:
    return context.page(
        "networks/list.html",
        **context.listing(networks.list_networks, place, "network", "networks"),
        written=fields,
        done=done,
        error=error,
        may_upload=context.may(networks.create_network),
    )


def _file(part: object) -> UploadFile:
    if not isinstance(part, UploadFile) or not part.filename:
        raise InputInvalid(
            languages.gettext("No file was chosen."), [FieldError("file", languages.gettext("expected an ONNX file"))]
        )
    return part


PAGES = (router,)
MENU = (menu.MenuEntry(70, languages.marked("Networks"), f"{pages.ROOT}/networks", networks.list_networks, "models"),)
