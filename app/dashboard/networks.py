"""Public networks: by whose features models are learned, and where each of them comes from."""

import json
from typing import Literal

from fastapi import Response
from starlette.datastructures import UploadFile

from app.api import networks, problems
from app.dashboard import pages
from app.dashboard.languages import gettext
from app.dashboard.lists import Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import text
from lethe.contract.problems import FieldError, InputInvalid, Problem

router = pages.new_router()

_WRITTEN = ("name", "licence", "provenance", "dp_ledger")
Done = Literal["", "made"]
Deleted = Literal["", "deleted"]


@router.get("/networks")
def list_networks(context: TheContext, place: ThePlace, done: Deleted = "") -> Response:
    """List the networks, newest first, and the form for another."""
    return _listed(context, place=place, done=done, written=dict.fromkeys(_WRITTEN, ""))


@router.post("/networks")
def upload_network(context: TheContext, form: Form) -> Response:
    """Take a network and show it, or show why it is refused."""
    context.require(networks.create_network)
    written = {name: text(form, name) for name in _WRITTEN}
    try:
        for name in _WRITTEN[:-1]:
            if not written[name]:
                raise InputInvalid(
                    gettext("Something is not filled in."), [FieldError(name, gettext("expected some text"))]
                )
        answer = context.ask(
            networks.create_network,
            file=_file(form.get("file")),
            **written | {"dp_ledger": written["dp_ledger"] or None},
        )
    except Problem as error:
        return _listed(context, place=Place(), written=written, error=error)
    return pages.see(f"{ROOT}/networks/{json.loads(bytes(answer.body))['id']}", done="made")


@router.get("/networks/{network_id}")
def show_network(context: TheContext, network_id: str, done: Done = "") -> Response:
    """One network: what it takes and gives, and where it comes from."""
    network = context.ask(networks.get_network, network_id=network_id)
    return context.page(
        "networks/one.html", network=network, done=done, may_delete=context.may(networks.delete_network)
    )


@router.post("/networks/{network_id}/delete")
def delete_network(context: TheContext, network_id: str) -> Response:
    """Let go of it."""
    context.ask(networks.delete_network, network_id=network_id)
    return pages.see(f"{ROOT}/networks", done="deleted")


def _listed(
    context: RequestContext,
    *,
    place: Place,
    written: dict[str, str],
    done: Deleted = "",
    error: Problem | None = None,
) -> Response:
    found = context.ask(networks.list_networks, limit=place.size, cursor=place.cursor)
    return context.page(
        "networks/list.html",
        status=problems.status_of(type(error)) if error else 200,
        found=found,
        place=place,
        extent=place.extent(found, "network", "networks"),
        written=written,
        done=done,
        error=error,
        may_upload=context.may(networks.create_network),
    )


def _file(found: object) -> UploadFile:
    if not isinstance(found, UploadFile) or not found.filename:
        raise InputInvalid(gettext("No file was chosen."), [FieldError("file", gettext("expected an ONNX file"))])
    return found
