"""Life cycle of a deletion request, as a table of transitions."""

from lethe.contract.problems import TransitionForbidden
from lethe.contract.sets import EventKind, RequestStatus

TRANSITIONS: dict[RequestStatus, frozenset[RequestStatus]] = {
    RequestStatus.RECEIVED: frozenset({RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED}),
    RequestStatus.IN_REVIEW: frozenset({RequestStatus.ACCEPTED, RequestStatus.REJECTED, RequestStatus.CANCELLED}),
    RequestStatus.ACCEPTED: frozenset(
        {RequestStatus.RUNNING, RequestStatus.COMPLETED, RequestStatus.REJECTED, RequestStatus.CANCELLED}
    ),
    # A running request is accepted again if its worker dies.
    RequestStatus.RUNNING: frozenset({RequestStatus.COMPLETED, RequestStatus.ACCEPTED}),
    RequestStatus.COMPLETED: frozenset(),
    RequestStatus.REJECTED: frozenset(),
    RequestStatus.CANCELLED: frozenset(),
}

OPEN = frozenset({RequestStatus.RECEIVED, RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED, RequestStatus.RUNNING})

OF_THE_CLOCK = frozenset({EventKind.EXTENDED, EventKind.PAUSED, EventKind.RESUMED})
"""Events that leave the status unchanged and are visible to every reader."""
MAX_HAND_BACKS = 2
"""Maximum number of events per request about unsuccessful runs that served it."""


def entered(wanted: RequestStatus) -> EventKind:
    """Return the default event kind of a request that enters a status."""
    return EventKind(wanted.value)


def check(present: str, wanted: RequestStatus) -> None:
    """Raise `TransitionForbidden` unless a request may go from `present` to `wanted`."""
    if wanted not in TRANSITIONS[RequestStatus(present)]:
        raise TransitionForbidden(status=present, wanted_status=wanted.value)
