"""Assignment of requests to the people whose cases they are."""

from sqlalchemy.orm import Session

from app.access import repository as access_repository
from app.access import users
from app.audit import service as audit
from app.db.tables import DeletionRequest
from lethe.contract.deletion_requests import NOBODY
from lethe.contract.problems import NotAssignable


def assign(session: Session, request: DeletionRequest, *, assignee: str) -> None:
    """Make a request the case of a person, or of `NOBODY`: on record in the audit log, and not among its events, which
    apps read. Raises `NotAssignable` for a person who is not known, is disabled, or does not decide about requests."""
    wanted = None if assignee == NOBODY else assignee
    if wanted == request.assignee:
        return
    if wanted is not None:
        user = access_repository.user(session, wanted)
        if user is None or not users.may_decide(user):
            raise NotAssignable(
                "Nobody with this id decides about requests here; GET /v1/deletion-requests:assignees lists who does."
            )
    request.assignee = wanted
    audit.record(session, "deletion_request.assigned", request.id, assignee=wanted)
