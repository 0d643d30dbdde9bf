"""The signed statement about a request that held nothing. It is made when it is asked for, from what is on record, and
so it is the same each time; nothing is written, so that storing a request takes as long for everybody."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.accounting import certificates, repository
from app.db.tables import DeletionRequest
from app.keys import Keys
from lethe.contract.sets import Outcome
from lethe.proof import absence


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    jws: str
    statement: dict[str, Any]


def of(session: Session, keys: Keys, request: DeletionRequest, *, identity_rule: str) -> Absence | None:
    """State that nothing was held when the request was accepted, in the datasets it asked about; None for any other
    request.

    For callers who may know whether anything is held, and for no others. `identity_rule`: in words, when two
    identifiers are one person's; that of a tenant does not change once there is a request.
    """
    looked_at = repository.accepted_at(session, request_id=request.id)
    if request.outcome != Outcome.NOTHING_HELD or looked_at is None:
        return None
    statement = absence.statement(
        request={"id": request.id, "submitted_at": request.submitted_at.isoformat()},
        looked_at=looked_at.isoformat(),
        identity_rule=identity_rule,
        dataset_ids=repository.datasets_at(session, at=looked_at, among=request.dataset_ids),
    )
    return Absence(jws=certificates.sign(keys, statement), statement=statement)
