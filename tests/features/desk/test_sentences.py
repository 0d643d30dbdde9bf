import datetime
from typing import Any

from app.api import sentences
from app.deletion import status
from app.deletion.views import Event
from lethe.contract.sets import EventKind, RequestStatus, RunStatus
from tests.tables import each

AT = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)


def said(kind: EventKind, facts: dict[str, Any] | None = None) -> str | None:
    event = Event(at=AT, kind=kind, status=RequestStatus.RUNNING, actor="lethe", facts=facts)
    return sentences.of_event(event)


FACTS: dict[EventKind, list[dict[str, Any]]] = {
    EventKind.ROWS_ERASED: [{"num_rows": num_rows, "dataset_id": "ds_1"} for num_rows in (1, 2)],
    EventKind.HANDED_BACK: [
        {"run_status": one, "error_code": "OSError", "again": again}
        for one in (RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.ABANDONED)
        for again in (False, True)
    ],
}


def test_every_event_has_its_sentence() -> None:
    """Every kind of event has its own sentence, except for events that only change the status."""
    plain = {status.entered(wanted) for wanted in RequestStatus}
    told = [said(kind, facts) for kind in set(EventKind) - plain for facts in FACTS.get(kind, [{}])]
    assert [said(kind) for kind in plain] == [None] * len(RequestStatus)
    assert None not in told
    assert len(set(told)) == len(told)


@each(
    ("happened", "facts", "sentence"),
    [
        (EventKind.NOTHING_HELD, None, "nothing is held about this subject"),
        (EventKind.EXTENDED, None, "the deadline was extended"),
        (EventKind.PAUSED, None, "the clock was paused"),
        (EventKind.RESUMED, None, "the clock runs again"),
        (EventKind.AT_RISK, None, "the deadline is near"),
        (EventKind.OVERDUE, None, "the deadline has passed"),
        (EventKind.ROWS_ERASED, FACTS[EventKind.ROWS_ERASED][0], "1 row erased from dataset ds_1"),
        (EventKind.ROWS_ERASED, FACTS[EventKind.ROWS_ERASED][1], "2 rows erased from dataset ds_1"),
        *(
            (EventKind.HANDED_BACK, facts, sentence)
            for facts, sentence in zip(
                FACTS[EventKind.HANDED_BACK],
                (
                    "its run failed (OSError); it will be tried again",
                    "its run failed (OSError) again; it is tried until it succeeds",
                    "its run was cancelled; it will be tried again",
                    "its run was cancelled again; it is tried until it succeeds",
                    "its worker stopped; it will be tried again",
                    "its worker stopped again; it is tried until it succeeds",
                ),
                strict=True,
            )
        ),
    ],
)
def test_sentences_of_the_api_are_unchanged(happened: EventKind, facts: dict[str, Any] | None, sentence: str) -> None:
    """The API describes each kind of event with its fixed English sentence."""
    assert said(happened, facts) == sentence
