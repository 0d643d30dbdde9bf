"""The life of a deletion request, as a table."""

from enum import StrEnum

from app.errors import TransitionForbidden


class Status(StrEnum):
    RECEIVED = "received"
    ACCEPTED = "accepted"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.RECEIVED: frozenset({Status.ACCEPTED, Status.COMPLETED}),
    Status.ACCEPTED: frozenset({Status.RUNNING, Status.COMPLETED, Status.CANCELLED}),
    Status.RUNNING: frozenset({Status.COMPLETED, Status.ACCEPTED}),  # back to accepted: its worker died
    Status.COMPLETED: frozenset(),
    Status.CANCELLED: frozenset(),
}

OPEN = frozenset({Status.RECEIVED, Status.ACCEPTED, Status.RUNNING})


def check(present: str, wanted: Status) -> None:
    """Raises `TransitionForbidden` unless a request may go from `present` to `wanted`."""
    if wanted not in TRANSITIONS[Status(present)]:
        raise TransitionForbidden(f"A request that is {present} cannot become {wanted.value}.")
