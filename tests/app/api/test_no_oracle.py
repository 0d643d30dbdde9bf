"""Timing side channels: what a discreet caller can measure about the work done for held and unknown people."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.api import middleware
from app.installations import Installation
from benchmarks.timing import Separation
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
ROW = {"records": [[0.1, 0.2, 0.3]]}
ONLY_IF_HELD = ("FROM models ", "INSERT INTO erasures ", "INSERT INTO request_models ")
"""Statements about the datasets and models that hold a person, which are stored with the request; a stranger has
none."""


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect the SQL statements of the calls in the block, beginning with the first write."""
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
def test_held_and_unknown_people_get_the_same_responses(
    gateway: TestClient, live: dict[str, Any], key_with: Callable[..., dict[str, str]], name: str
) -> None:
    """A discreet caller, who may not know who is held, gets responses of the same length and with the same headers for
    a held person and an unknown person. Both calls execute the same statements, except for the three statements that
    record which models owe a version."""
    gateway.headers.update(key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE))

    def call(who: str) -> httpx.Response:
        path, asked = CALLS[name](who)
        answer: httpx.Response = gateway.post(path, **asked)
        assert answer.status_code == 202, answer.text
        return answer

    call("p0")  # work that is done only once
    seen = []
    for who in ("p1", "q1"):
        with statements() as asked:
            answer = call(who)
        same = [one for one in asked if not any(words in one for words in ONLY_IF_HELD)]
        assert len(asked) - len(same) <= (len(ONLY_IF_HELD) if who == "p1" else 0)
        assert len(same) > 3
        seen.append((len(answer.content), sorted(answer.headers), same))
    assert seen[0] == seen[1]


def test_response_times_reveal_nothing_to_discreet_callers(
    gateway: TestClient, installation: Installation, key_with: Callable[..., dict[str, str]]
) -> None:
    """A discreet caller cannot tell from response times whether a call had to wait for another transaction: the AUC is
    within four standard errors of 0.5, and every response takes at least the fixed interval at which responses to
    discreet callers are sent."""
    gateway.headers.update(key_with(Scope.REQUESTS_WRITE))
    dice = random.Random(0)
    arms = [True, False] * 40
    dice.shuffle(arms)
    seen: dict[bool, list[float]] = {True: [], False: []}

    def hold(begun: threading.Event) -> None:
        with installation.database.writing() as session:
            session.connection()
            begun.set()
            time.sleep(0.04)

    for number, waits in enumerate(arms):
        holder, begun = None, threading.Event()
        if waits:
            holder = threading.Thread(target=hold, args=(begun,))
            holder.start()
            assert begun.wait(30)
        began = time.monotonic()
        assert gateway.post(PLACE, json={"subject_id": f"stranger-{number}"}).status_code == 202
        seen[waits].append(time.monotonic() - began)
        if holder:
            holder.join()
    found = Separation.of(seen[True], seen[False])
    assert found.deviations <= 4, found
    assert min(seen[True] + seen[False]) >= middleware._INTERVAL_SECONDS


@pytest.mark.parametrize("who", ["admin", "reader", "predictor"])
def test_only_changes_by_discreet_callers_are_delayed(
    gateway: TestClient, live: dict[str, Any], key_with: Callable[..., dict[str, str]], who: str
) -> None:
    """Calls that change nothing are not delayed, and neither are calls by callers who may know what is held: the
    fastest of ten responses takes less time than the interval at which responses to discreet callers are sent."""
    times = []
    for number in range(10):
        method, path, body, headers = {
            "admin": ("POST", PLACE, {"subject_id": f"q{number}"}, None),
            "reader": ("GET", PLACE, None, key_with(Scope.REQUESTS_READ)),
            "predictor": ("POST", f"/v1/models/{live['id']}/predictions", ROW, key_with(Scope.MODELS_READ)),
        }[who]
        began = time.monotonic()
        answer = gateway.request(method, path, json=body, headers=headers)
        times.append(time.monotonic() - began)
        assert answer.is_success, answer.text
    assert min(times) < middleware._INTERVAL_SECONDS
