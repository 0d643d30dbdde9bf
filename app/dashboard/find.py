"""The box in the frame: an id, a case number, or a part of a name, and the page that it leads to."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Response

from app.api import certificates, datasets, deletion_requests, models
from app.dashboard import pages
from app.dashboard.languages import gettext
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import text
from lethe.contract.problems import FieldError, InputInvalid

router = pages.new_router()

_MOST = 20
"""Entries of each kind that are named."""
_LONGEST = 200
_PLACES: Mapping[str, str] = {
    "dr": "requests",
    "mdl": "models",
    "ds": "datasets",
    "net": "networks",
    "run": "runs",
    "key": "keys",
    "whd": "deliveries",
}
"""By the beginnings of ids."""


@router.post("/find")
def find(context: TheContext, form: Form) -> Response:
    """Lead to what is sought, or name all that it could be. A case number comes in the body: no address has it."""
    sought = text(form, "anything")
    if not 0 < len(sought) <= _LONGEST or "\x00" in sought:
        raise InputInvalid(
            gettext("Nothing was sought."),
            [FieldError("anything", gettext("Write an id, a case number or a name."))],
        )
    if path := _of_id(context, sought):
        return pages.see(path)
    found = {
        "requests": _asked(context, deletion_requests.list_deletion_requests, external_id=sought),
        "models": _asked(context, models.list_models, name=sought),
        "datasets": _asked(context, datasets.list_datasets, name=sought),
    }
    every = [f"{ROOT}/{kind}/{one.id}" for kind, some in found.items() for one in some]
    if len(every) == 1:
        return pages.see(every[0])
    return context.page("find/found.html", found=found, most=_MOST)


def _of_id(context: RequestContext, sought: str) -> str | None:
    """The page of an id; None if it is none, or of something that has no page."""
    if not re.fullmatch(r"[a-z]{2,3}_[0-9a-f]{6,64}", sought):
        return None
    kind = sought.partition("_")[0]
    if kind == "crt":
        certificate = context.ask(certificates.get_certificate, certificate_id=sought)
        return f"{ROOT}/requests/{certificate.request_id}#{sought}"
    return f"{ROOT}/{_PLACES[kind]}/{sought}" if kind in _PLACES else None


def _asked(context: RequestContext, endpoint: Callable[..., Any], **by: str) -> list[Any]:
    """The newest; none for a caller who may not ask."""
    return list(context.ask(endpoint, **by, limit=_MOST).items) if context.may(endpoint) else []
