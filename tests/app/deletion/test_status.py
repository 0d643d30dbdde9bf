import itertools

import pytest

from app.deletion import status
from app.deletion.status import OPEN, TRANSITIONS
from lethe.contract.problems import TransitionForbidden
from lethe.contract.sets import EventKind, RequestStatus
from tests.tables import each

ALLOWED = {
    ("received", "in_review"),
    ("received", "accepted"),
    ("in_review", "accepted"),
    ("in_review", "rejected"),
    ("in_review", "cancelled"),
    ("accepted", "running"),
    ("accepted", "completed"),
    ("accepted", "rejected"),
    ("accepted", "cancelled"),
    ("running", "completed"),
    ("running", "accepted"),
}


@each(("present", "wanted"), list(itertools.product(RequestStatus, RequestStatus)))
def test_only_permitted_transitions_are_accepted(present: RequestStatus, wanted: RequestStatus) -> None:
    """Exactly eleven status transitions are permitted, and all others are refused."""
    if (present, wanted) in ALLOWED:
        status.check(present, wanted)
    else:
        with pytest.raises(TransitionForbidden):
            status.check(present, wanted)


def test_every_open_state_can_end() -> None:
    """Completion can be reached from every open status, and a final status has no transitions."""
    for state in RequestStatus:
        reachable = {state}
        for _ in RequestStatus:
            reachable |= {after for before in reachable for after in TRANSITIONS[before]}
        assert (RequestStatus.COMPLETED in reachable) == (state in OPEN or state is RequestStatus.COMPLETED)
        assert bool(TRANSITIONS[state]) == (state in OPEN)


def test_every_status_has_an_event_kind() -> None:
    """Each request status has an event kind with the same name."""
    kinds = {status.entered(wanted) for wanted in RequestStatus}
    assert kinds <= set(EventKind)
    assert sorted(kinds) == sorted(RequestStatus)
