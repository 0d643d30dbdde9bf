"""Calls that bypass FastAPI's resolution because they are ordinary get the same responses as other calls."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.tables import each

PLACE = "/v1/deletion-requests"
BODY = b'{"subject_id": "p1", "regulation": "ccpa", "metadata": {"ticket": "T-1"}}'
ORDINARY = {"content-type": "application/json"}
_OF_THE_CALL = {"id", "created_at", "submitted_at", "due_at", "clock", "estimate"}
"""Fields of an answer that differ from call to call."""


@pytest.fixture
def held(new_dataset: Callable[..., dict[str, Any]]) -> None:
    """Upload a dataset that contains the person."""
    new_dataset()


@pytest.mark.usefixtures("held")
@each(
    ("target", "content_type"),
    [("?strict=false", "application/json"), ("", "application/json; charset=utf-8"), ("", "application/merge+json")],
)
def test_the_fast_path_agrees_with_fastapi(gateway: TestClient, target: str, content_type: str) -> None:
    """A call that FastAPI has to resolve, because it has a query string or another content type, gets the same response
    as a call on the fast path."""
    ordinary = gateway.post(PLACE, content=BODY, headers=ORDINARY)
    resolved = gateway.post(PLACE + target, content=BODY, headers={"content-type": content_type})
    assert (ordinary.status_code, resolved.status_code) == (202, 202)
    answers = [answer.json() for answer in (ordinary, resolved)]
    assert answers[0].keys() == answers[1].keys()
    same = answers[0].keys() - _OF_THE_CALL
    assert {name: answers[0][name] for name in same} == {name: answers[1][name] for name in same}


@each(
    ("body", "headers", "paths"),
    [
        (b'{"subject_id": 5}', {}, ["subject_id"]),
        (b'{"subject_id": "p1", "aliases": ["a", ""], "colour": "red"}', {}, ["aliases.1", "colour"]),
        (b'{"subject_id": "p1"', {}, ["19"]),
        (b"\xff", {}, []),
        (b"", {}, ["body"]),
        (BODY, {"Idempotency-Key": ""}, ["idempotency-key"]),
        (BODY, {"Idempotency-Key": "k" * 256}, ["idempotency-key"]),
    ],
)
def test_faults_on_the_fast_path_are_listed(
    gateway: TestClient, body: bytes, headers: dict[str, str], paths: list[str]
) -> None:
    """An invalid call on the fast path returns 422 with the location of each fault, and nothing is created."""
    answer = gateway.post(PLACE, content=body, headers=ORDINARY | headers)
    assert answer.status_code == 422
    assert answer.json()["code"] == "input_invalid"
    assert [fault["path"] for fault in answer.json()["errors"]] == paths
    assert gateway.get(PLACE).json()["items"] == []
