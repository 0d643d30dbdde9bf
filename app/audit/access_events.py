"""Access events: look-ups of people, recorded before they are answered, but not the person: this log is kept for
ever."""

from collections.abc import Iterable

from sqlalchemy.orm import Session

from app.audit.service import record
from app.db import actor


def subject_looked_up(session: Session, *, dataset_id: str) -> None:
    """The session's actor asks how much a dataset holds about a person."""
    record(session, "subject.looked_up", dataset_id)


def attachment_read(session: Session, *, request_id: str, attachment_id: str) -> None:
    """The session's actor is given a file that is attached to a request."""
    record(session, "deletion_request.attachment_read", request_id, attachment=attachment_id)


def lineage_read(session: Session) -> None:
    """The session's actor asks where a person's rows went."""
    record(session, "lineage.read", actor(session).tenant_id)


def requests_exported(session: Session, *, sought_by: Iterable[str]) -> None:
    """The session's actor is given a list of requests. `sought_by`: the names of the filters that chose them."""
    record(session, "deletion_requests.exported", actor(session).tenant_id, sought_by=sorted(sought_by))


def requests_looked_up(session: Session) -> None:
    """The session's actor asks which requests are about a person."""
    record(session, "deletion_requests.looked_up", actor(session).tenant_id)


def suppression_looked_up(session: Session) -> None:
    """The session's actor asks whether a person is kept out."""
    record(session, "suppressions.looked_up", actor(session).tenant_id)
