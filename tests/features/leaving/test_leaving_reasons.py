"""The endpoints below `/v1/leaving-reasons`: counted without a trace, estimated with error bars."""

import math
from collections.abc import Callable
from typing import Any

import httpx
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import Table
from app.installations import Installation
from lethe.features.leaving.local import RandomisedResponse
from tests.tables import each

Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]

PLACE = "/v1/leaving-reasons"
REASONS = ["privacy", "not_using", "cost", "switched", "other"]


def sent(gateway: TestClient, answer: str = "cost", odds: Any = 3, **more: Any) -> httpx.Response:
    return gateway.post(PLACE, json={"answer": answer, "odds": odds}, **more)


def everything(installation: Installation) -> dict[str, list[Any]]:
    """Return every row of every table, except the times at which keys were used."""
    with installation.database.reading() as session:
        return {
            table.name: [tuple(row) for row in session.execute(sa.select(table))]
            for table in Table.metadata.sorted_tables
            if table.name != "api_keys"
        }


def test_answers_are_counted_and_estimated(gateway: TestClient, get: Get) -> None:
    """The response contains the answers' counts, shares, standard errors and intervals, grouped by the odds that
    clients used."""
    assert get("/leaving-reasons")["surveys"] == []
    for answer, times in zip(REASONS, (4, 2, 9, 1, 2), strict=True):
        for _ in range(times):
            assert sent(gateway, answer).status_code == 200
    sent(gateway, odds=20)
    found = get("/leaving-reasons")
    assert found["confidence"] == 0.95
    assert "Kairouz" in found["method"]
    first, second = found["surveys"]
    assert (first["odds"], first["epsilon"], first["num_answers"]) == (3, math.log(3), 18)
    assert (second["odds"], second["num_answers"]) == (20, 1)
    assert [one["reason"] for one in first["reasons"]] == REASONS
    expected = RandomisedResponse(odds=3, num_answers=5).estimates([4, 2, 9, 1, 2], confidence=0.95)
    for one, estimate in zip(first["reasons"], expected, strict=True):
        assert (one["sent"], one["share"], one["low"], one["high"]) == (
            estimate.sent,
            estimate.share,
            estimate.low,
            estimate.high,
        )
        assert one["standard_error"] == estimate.standard_error


def test_an_answer_changes_only_a_counter(gateway: TestClient, installation: Installation) -> None:
    """An answer changes one counter and no other row of any table, with or without an idempotency key."""
    assert sent(gateway).status_code == 200
    before = everything(installation)
    assert sent(gateway, headers={"Idempotency-Key": "somebody"}).status_code == 200
    after = everything(installation)
    [counter], [grown] = before.pop("leaving_counts"), after.pop("leaving_counts")
    assert (*counter[:-1], counter[-1] + 1) == grown
    assert after == before


def test_estimates_are_selected_by_week(gateway: TestClient, get: Get) -> None:
    """The response to an answer names the Monday of its week, and `since` and `until` select estimates by that date."""
    week = sent(gateway).json()["week"]
    assert get(f"/leaving-reasons?since={week}")["surveys"][0]["num_answers"] == 1
    assert get(f"/leaving-reasons?until={week}")["surveys"] == []


@each(
    "body",
    [
        {"answer": "cost"},
        {"odds": 3},
        {"answer": "because of you", "odds": 3},
        {"answer": "cost", "odds": 1},
        {"answer": "cost", "odds": 101},
        {"answer": "cost", "odds": "3"},
        {"answer": "cost", "odds": True},
        {"answer": "cost", "odds": 2.5},
        {"answer": "cost", "odds": 3, "subject_id": "p1"},
        {"answer": "cost", "odds": 3, "request_id": "dr_1"},
    ],
)
def test_invalid_answers_are_refused(gateway: TestClient, get: Get, refused: Refused, body: dict[str, Any]) -> None:
    """An answer is refused and not counted if it contains free text, odds under which answers would reveal nothing or
    everything, or a field that would identify a person."""
    problem = refused(gateway.post(PLACE, json=body), 422, "input_invalid")
    assert "because" not in str(problem)
    assert get("/leaving-reasons")["surveys"] == []


@each("query", ["since=0", "since=yesterday", "until=2026-13-01", "until=2026-11-16T10:00:00Z"])
def test_invalid_dates_are_refused(gateway: TestClient, refused: Refused, query: str) -> None:
    """A week range with invalid dates is refused."""
    refused(gateway.get(f"{PLACE}?{query}"), 422, "input_invalid")
