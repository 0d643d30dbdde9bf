"""The life of a deletion request, as a table."""

from lethe.contract.problems import TransitionForbidden
from lethe.contract.sets import EventKind, RequestStatus

TRANSITIONS: dict[RequestStatus, frozenset[RequestStatus]] = {
    RequestStatus.RECEIVED: frozenset({RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED}),
    RequestStatus.IN_REVIEW: frozenset({RequestStatus.ACCEPTED, RequestStatus.REJECTED, RequestStatus.CANCELLED}),
    RequestStatus.ACCEPTED: frozenset(
        {RequestStatus.RUNNING, RequestStatus.COMPLETED, RequestStatus.REJECTED, RequestStatus.CANCELLED}
    ),
    RequestStatus.RUNNING: frozenset(
        {RequestStatus.COMPLETED, RequestStatus.ACCEPTED}
    ),  # back to accepted: its worker died
    RequestStatus.COMPLETED: frozenset(),
    RequestStatus.REJECTED: frozenset(),
    RequestStatus.CANCELLED: frozenset(),
}

OPEN = frozenset({RequestStatus.RECEIVED, RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED, RequestStatus.RUNNING})

OF_THE_CLOCK = frozenset({EventKind.EXTENDED, EventKind.PAUSED, EventKind.RESUMED})
"""Events that leave the status as it is, and that everybody may see."""
MOST_HAND_BACKS = 2
"""Events of a request that say that a run which served it did not end well. There is no third."""


def entered(wanted: RequestStatus) -> EventKind:
    """Return the event of taking on a status, where nothing more is to be said of it."""
    return EventKind(wanted.value)


def check(present: str, wanted: RequestStatus) -> None:
    """Raises `TransitionForbidden` unless a request may go from `present` to `wanted`."""
    if wanted not in TRANSITIONS[RequestStatus(present)]:
        raise TransitionForbidden(f"A request that is {present} cannot become {wanted.value}.")
