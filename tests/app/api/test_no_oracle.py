"""What a discreet caller could measure: how much the service does for somebody who is held, and for a stranger."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from lethe.contract.sets import Scope

PLACE = "/v1/deletion-requests"
HOOK = "https://receiver.example/hook"
CSV = {"Content-Type": "text/csv"}
Ask = Callable[[str], tuple[str, dict[str, Any]]]

CALLS: dict[str, Ask] = {
    "alone": lambda who: (PLACE, {"json": {"subject_id": who}}),
    "with a callback": lambda who: (PLACE, {"json": {"subject_id": who, "callback_url": HOOK}}),
    "once": lambda who: (PLACE, {"json": {"subject_id": who}, "headers": {"Idempotency-Key": f"of {who}"}}),
    "in review": lambda who: (PLACE, {"json": {"subject_id": who, "identity_verified": False}}),
    "in a batch": lambda who: (f"{PLACE}:batch", {"json": {"requests": [{"subject_id": who}]}}),
    "in a file": lambda who: (f"{PLACE}.csv", {"content": f"subject_id\n{who}\n", "headers": CSV}),
}
ONLY_IF_HELD = ("FROM models ", "INSERT INTO erasures ", "INSERT INTO request_models ")
"""What is asked of the datasets and models that hold somebody is stored with the request: for a stranger, nothing."""


@contextmanager
def statements() -> Iterator[list[str]]:
    """What is asked of the database from the first write on, by the calls in the block and nothing besides them."""
    found: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, _parameters: Any, _context: Any, _many: bool) -> None:
        thread = threading.current_thread().name
        if (thread == "intake" or "AnyIO" in thread) and (found or statement == "BEGIN IMMEDIATE"):
            found.append(" ".join(statement.split()))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


@pytest.mark.parametrize("name", CALLS)
def test_a_stranger_is_answered_like_somebody_held(
    gateway: TestClient, live: dict[str, Any], key_with: Callable[..., dict[str, str]], name: str
) -> None:
    """A discreet call gets an answer of the same length and headers, after the same statements but for the three that
    store what somebody held is to be forgotten by."""
    gateway.headers.update(key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE))

    def call(who: str) -> httpx.Response:
        path, asked = CALLS[name](who)
        answer: httpx.Response = gateway.post(path, **asked)
        assert answer.status_code == 202, answer.text
        return answer

    call("p0")  # whatever is done once
    seen = []
    for who in ("p1", "q1"):
        with statements() as asked:
            answer = call(who)
        same = [one for one in asked if not any(words in one for words in ONLY_IF_HELD)]
        assert len(asked) - len(same) <= (len(ONLY_IF_HELD) if who == "p1" else 0)
        assert len(same) > 3
        seen.append((len(answer.content), sorted(answer.headers), same))
    assert seen[0] == seen[1]
