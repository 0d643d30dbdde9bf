"""The life of a deletion request, as a table."""

from enum import StrEnum

from lethe.contract.problems import TransitionForbidden


class Status(StrEnum):
    RECEIVED = "received"
    IN_REVIEW = "in_review"
    ACCEPTED = "accepted"
    RUNNING = "running"
    COMPLETED = "completed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """What a completed request came to. In all but the second the rows are erased and every model met its target."""

    FORGOTTEN = "forgotten"
    NOTHING_HELD = "nothing_held"
    TARGET_WIDENED = "target_widened"
    """The target of a model at least is weaker than the default bounds, so that meeting it is not called forgotten."""


TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.RECEIVED: frozenset({Status.IN_REVIEW, Status.ACCEPTED}),
    Status.IN_REVIEW: frozenset({Status.ACCEPTED, Status.REJECTED, Status.CANCELLED}),
    Status.ACCEPTED: frozenset({Status.RUNNING, Status.COMPLETED, Status.REJECTED, Status.CANCELLED}),
    Status.RUNNING: frozenset({Status.COMPLETED, Status.ACCEPTED}),  # back to accepted: its worker died
    Status.COMPLETED: frozenset(),
    Status.REJECTED: frozenset(),
    Status.CANCELLED: frozenset(),
}

OPEN = frozenset({Status.RECEIVED, Status.IN_REVIEW, Status.ACCEPTED, Status.RUNNING})

EXTENDED = "the deadline was extended"
PAUSED = "the clock was paused"
RESUMED = "the clock runs again"
"""Events that leave the status as it is, and that everybody may see."""
AT_RISK = "the deadline is near"
OVERDUE = "the deadline has passed"
"""Events that leave the status as it is."""
HANDED_BACK = ("; it will be tried again", " again; it is tried until it succeeds")
"""How the events end, of a first and of a second run that served a request and did not end well. There is no third."""


def check(present: str, wanted: Status) -> None:
    """Raises `TransitionForbidden` unless a request may go from `present` to `wanted`."""
    if wanted not in TRANSITIONS[Status(present)]:
        raise TransitionForbidden(f"A request that is {present} cannot become {wanted.value}.")
