"""The end of requests that waited for nothing but the end of their grace time, or for damaged records.

People who are about to be told that nothing is held of them, or that all of it is gone, are looked up once more: a
record that was damaged when they asked may be sound by now.
"""

from sqlalchemy.orm import Session

from app.access import service as access
from app.audit import service as audit
from app.db import now
from app.db.tables import DeletionRequest
from app.deletion import acceptance, completion, history, lookup, repository, suppression
from app.deletion.acceptance import Submitted
from app.deletion.lookup import LookedUp
from lethe.contract.sets import Outcome

_AT_ONCE = 500


def settle(session: Session, *, limit: int = _AT_ONCE) -> int:
    """Complete requests that wait for nothing more, or ask for what is found only now; returns how many (`limit` at
    most). Those that may be about somebody whose records are damaged go on waiting.

    Until then a request about somebody of whom nothing is held waits like any other: nobody sees a difference.
    """
    at = now(session)
    settled = repository.settled(session, at=at, limit=limit)
    policies = {tenant_id: access.policy_of(session, tenant_id) for tenant_id in {r.tenant_id for r, _ in settled}}
    widened = lookup.widened(session, request_ids=[request.id for request, _ in settled])
    found = lookup.look_up(session, subject_refs={ref for request, _ in settled for ref in request.subject_refs})
    every: list[Submitted] = []
    for request, holds in settled:
        new = Submitted(actor=audit.SERVICE, request=request, erasures=[], models=[], changes=[])
        acceptance.ask(new, found, besides=_done_with(session, request, found, holds=holds))
        outcome = acceptance.outcome(new, found)
        if outcome is not None:
            if holds and outcome is not Outcome.TARGET_WIDENED:
                outcome = completion.outcome_of_erased(request, widened=widened)
            policy = policies[request.tenant_id]
            new.changes.append(completion.complete(request, policy=policy, at=at, outcome=outcome, verb="completed"))
        every.append(new)
    acceptance.store_asked(session, every)
    history.tell(session, [change for new in every for change in new.changes])
    return len(settled)


def _done_with(session: Session, request: DeletionRequest, found: LookedUp, *, holds: bool) -> set[str]:
    """Datasets whose rows the request has asked for, and those that hold the person's by a consent since."""
    own = {erasure.dataset_id for erasure in repository.erasures(session, request_id=request.id)} if holds else set()
    there = found.held(request.subject_refs) - own
    return own | {one for one in there if not suppression.is_suppressed(session, one, request.subject_refs)}
