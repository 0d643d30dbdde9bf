"""Receivers are told in the words that they know: ours, or those of the protocol that the request came by."""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy.orm import Session

from app.access import service as access
from app.db.tables import DeletionRequest
from app.deletion.views import View
from app.protocols import drp, opendsr
from app.protocols import repository as protocols
from app.webhooks import repository, service
from app.webhooks.payload import Announcement, Message

_MOMENT = datetime.timedelta(microseconds=1)

Words = Callable[[Session, Sequence[DeletionRequest], datetime.datetime, str], str]
"""The text about requests that are one to the protocol, at a moment, for one receiver."""


def announce(session: Session, announcements: Sequence[Announcement]) -> None:
    """Tell the receivers of these requests, in the transaction that changes them."""
    ours = [told for told in announcements if told.request.source not in _PROTOCOLS]
    service.announce_all(session, ours)
    theirs = [told for told in announcements if told.request.source in _PROTOCOLS]
    for told in {(_name(told.request), told.at): told for told in theirs}.values():  # where all stand is told once
        _tell(session, told, _PROTOCOLS[str(told.request.source)])


def _tell(session: Session, told: Announcement, words: Words) -> None:
    """Send how things stand now, and how they will be seen to stand when all has been reported; each only if the
    receiver was not sent the same last."""
    together = _together(session, told.request)
    first = together[0]
    reported = [one.reported_at for one in together if _is_discreet(one) and one.reported_at is not None]
    if reported and min(reported) > told.at:  # what is planned for then is planned anew
        repository.drop_planned(session, request_ids=[first.id], since=min(reported))
    for moment in sorted({told.at, max([told.at, *reported])}):
        for url in dict.fromkeys(first.particulars.callback_urls):
            body = words(session, together, moment, url)
            last = repository.last_notified(session, request_id=first.id, url=url, until=moment)
            if last is None or last.letter.body != body:
                at = moment if last is None else max(moment, last.created_at + _MOMENT)
                message = Message(request=first, urls=[url], event=f"{first.source}.status", body=body, at=at)
                service.send_all(session, [message])


def _name(request: DeletionRequest) -> tuple[str, str]:
    """A name that is the same for requests that are one to the protocol."""
    external_id = request.particulars.external_id
    is_part = request.source == opendsr.SOURCE and external_id is not None
    return request.tenant_id, str(external_id) if is_part else request.id


def _together(session: Session, request: DeletionRequest) -> list[DeletionRequest]:
    """The requests that are one to the protocol, in the order in which they came."""
    external_id = request.particulars.external_id
    if request.source != opendsr.SOURCE or external_id is None:
        return [request]
    found = protocols.requests(session, source=opendsr.SOURCE, external_id=external_id)
    return [one for one in found if one.tenant_id == request.tenant_id]


def _in_opendsr(_session: Session, requests: Sequence[DeletionRequest], at: datetime.datetime, url: str) -> str:
    standing = opendsr.standing(requests, statuses=[_status(one, at) for one in requests])
    return opendsr.callback_body(standing, url=url).decode()


def _in_drp(session: Session, requests: Sequence[DeletionRequest], at: datetime.datetime, _url: str) -> str:
    [request] = requests
    verification_url = access.policy_of(session, request.tenant_id).drp_verification_url
    body = drp.status_of(request, status=_status(request, at), verification_url=verification_url)
    return json.dumps(body, separators=(",", ":"))


_PROTOCOLS: Mapping[str, Words] = {opendsr.SOURCE: _in_opendsr, drp.SOURCE: _in_drp}


def _status(request: DeletionRequest, at: datetime.datetime) -> str:
    return View(discreet=_is_discreet(request), at=at).status(request)


def _is_discreet(request: DeletionRequest) -> bool:
    return request.discreet or request.source == drp.SOURCE
