"""Hooks of the `protocols` feature."""

import datetime
import json
from collections.abc import Sequence

from sqlalchemy.orm import Session

from app.access import service as access
from app.db.tables import DeletionRequest
from app.deletion import admission, views
from app.features.protocols import drp, identity, opendsr, service
from app.features.webhooks.service import ProtocolCallbacks


def _is_discreet(request: DeletionRequest) -> bool:
    return request.discreet or request.source == drp.SOURCE


def _status(request: DeletionRequest, at: datetime.datetime) -> str:
    return views.View(discreet=_is_discreet(request), at=at).status(request)


def _opendsr_name(request: DeletionRequest) -> str:
    """Return the id of the subject request to which a deletion request belongs."""
    return request.particulars.external_id or request.id


def _opendsr_parts(session: Session, request: DeletionRequest) -> list[DeletionRequest]:
    """Return the deletion requests that make up one subject request, one per identity."""
    external_id = request.particulars.external_id
    if external_id is None:
        return [request]
    requests = service.requests(session, source=opendsr.SOURCE, external_id=external_id)
    return [part for part in requests if part.tenant_id == request.tenant_id and not part.particulars.is_damaged]


def _opendsr_words(_session: Session, requests: Sequence[DeletionRequest], at: datetime.datetime, url: str) -> str:
    standing = opendsr.standing(requests, statuses=[_status(request, at) for request in requests])
    return opendsr.callback_body(standing, url=url).decode()


def _drp_words(session: Session, requests: Sequence[DeletionRequest], at: datetime.datetime, _url: str) -> str:
    [request] = requests
    verification_url = access.policy_of(session, request.tenant_id).drp_verification_url
    body = drp.status_of(request, status=_status(request, at), verification_url=verification_url)
    return json.dumps(body, separators=(",", ":"))


DIALECTS = (
    ProtocolCallbacks(
        source=opendsr.SOURCE,
        words=_opendsr_words,
        headers=lambda settings, body: opendsr.signer(settings).headers(body),
        name=_opendsr_name,
        parts=_opendsr_parts,
        is_discreet=_is_discreet,
    ),
    # The Data Rights Protocol does not sign callbacks.
    ProtocolCallbacks(
        source=drp.SOURCE,
        words=_drp_words,
        headers=lambda settings, body: {},
        name=lambda request: request.id,
        parts=lambda session, request: [request],
        is_discreet=_is_discreet,
    ),
)
SOURCES_IN_PARTS = (opendsr.SOURCE,)
RESERVED_SOURCES = (opendsr.SOURCE, drp.SOURCE)
_judge: admission.StatementJudge = identity
ADMITS = (_judge,)
