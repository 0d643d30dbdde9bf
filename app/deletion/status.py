"""The life of a deletion request, as a table."""

from lethe.contract.problems import TransitionForbidden
from lethe.contract.sets import RequestStatus

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

EXTENDED = "the deadline was extended"
PAUSED = "the clock was paused"
RESUMED = "the clock runs again"
"""Events that leave the status as it is, and that everybody may see."""
AT_RISK = "the deadline is near"
OVERDUE = "the deadline has passed"
"""Events that leave the status as it is."""
HANDED_BACK = ("; it will be tried again", " again; it is tried until it succeeds")
"""Endings of the events of a first and of a second run that served a request and did not end well. There is no
third."""


def check(present: str, wanted: RequestStatus) -> None:
    """Raises `TransitionForbidden` unless a request may go from `present` to `wanted`."""
    if wanted not in TRANSITIONS[RequestStatus(present)]:
        raise TransitionForbidden(f"A request that is {present} cannot become {wanted.value}.")
