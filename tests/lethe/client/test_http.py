"""Retries, errors and encoding of calls, tested with a server that misbehaves on purpose."""

import logging
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from lethe import Client
from lethe.errors import (
    AnswerInvalid,
    Conflict,
    Gone,
    Malformed,
    NotAllowed,
    NotFound,
    Problem,
    Refused,
    Unavailable,
    Unreachable,
)
from tests.lethe.scripted import Reply, Script

EMPTY = Reply(body={"items": [], "next_cursor": None})
DROP = Reply(drop=True)
ANNA = "anna@example.org"
REQUEST: dict[str, Any] = {
    "id": "dr_1",
    "status": "received",
    "outcome": None,
    "subject_ref": "0f" * 16,
    "alias_refs": [],
    "regulation": "gdpr",
    "ground": None,
    "external_id": ANNA,
    "metadata": {"who": ANNA},
    "submitted_at": "2026-01-01T00:00:00Z",
    "due_at": "2026-02-01T00:00:00Z",
    "extended_due_at": None,
    "extension_reason": ANNA,
    "clock": {"state": "on_time", "deadline": "2026-02-01T00:00:00Z", "paused_since": None, "days_left": 31},
    "held_until": None,
    "erased_by": None,
    "time_zone": "UTC",
    "rejection": {"ground": "legal_claims", "explanation": ANNA},
    "source": None,
    "refers_to": None,
    "created_at": "2026-01-01T00:00:00Z",
    "completed_at": None,
    "kept": "request",
    "estimate": None,
    "models": [],
}
DATASET = {
    "id": "ds_1",
    "name": "people",
    "num_records": 1,
    "num_slots": 1,
    "num_features": 3,
    "num_classes": 2,
    "classes": ["a", "b"],
    "num_subjects": 1,
    "revision": 0,
    "digest": "0f",
    "damage": None,
    "adaptive_budget": None,
    "schema": None,
    "created_at": "2026-01-01T00:00:00Z",
    "retired_at": None,
    "destroyed_at": None,
}


def problem(status: int, code: str = "not_now", **more: Any) -> Reply:
    headers = more.pop("headers", {})
    return Reply(
        status=status,
        body={"type": "about:blank", "title": "Not now", "status": status, "detail": "Again.", "code": code} | more,
        headers=headers,
    )


@pytest.mark.parametrize("failure", [DROP, problem(429), problem(502), problem(503), Reply(status=504, body=b"<html>")])
def test_a_get_is_retried(script: Script, scripted_client: Client, failure: Reply) -> None:
    """A GET whose connection is dropped, or that gets status 429, 502, 503 or 504, is retried until it succeeds."""
    script.says(failure, failure, EMPTY)
    assert list(scripted_client.runs.list()) == []
    assert [call.method for call in script.calls] == ["GET"] * 3


@pytest.mark.parametrize("failure", [DROP, problem(429), problem(503)])
def test_a_creating_call_is_retried_with_its_key(script: Script, scripted_client: Client, failure: Reply) -> None:
    """A POST that creates an object is retried with the same body and Idempotency-Key. A new call gets a new key."""
    script.says(failure, failure, Reply(status=202, body=REQUEST))
    assert scripted_client.deletion_requests.create(subject_id="p3").id == "dr_1"
    assert len(script.calls) == 3
    assert len({(call.headers["Idempotency-Key"], call.body) for call in script.calls}) == 1
    scripted_client.deletion_requests.create(subject_id="p3")
    scripted_client.deletion_requests.create(subject_id="p3", idempotency_key="mine")
    keys = [call.headers["Idempotency-Key"] for call in script.calls[2:]]
    assert len(set(keys)) == 3
    assert keys[-1] == "mine"


def test_an_upload_is_retried_as_a_whole(script: Script, scripted_client: Client, tmp_path: Path) -> None:
    """Every attempt at an upload sends the whole file with the same name, schema and key."""
    file = tmp_path / "people.csv"
    file.write_text("age\n" * 50_000)
    script.says(problem(503), DROP, Reply(status=201, body=DATASET | {"num_suppressed": 0, "warnings": []}))
    scripted_client.datasets.upload(file, schema={"columns": {}})
    assert len(script.calls) == 3
    for call in script.calls:
        assert call.body.count(b"age\n") == 50_000
        assert b'name="name"\r\n\r\npeople\r\n' in call.body
        assert b'name="schema"\r\n\r\n{"columns": {}}\r\n' in call.body
    assert len({call.headers["Idempotency-Key"] for call in script.calls}) == 1


@pytest.mark.parametrize("failure", [DROP, problem(429), problem(503)])
def test_other_calls_are_sent_once(script: Script, scripted_client: Client, failure: Reply) -> None:
    """Cancelling a request is never retried, because it changes the request and has no idempotency key."""
    script.says(failure)
    with pytest.raises((Unreachable, Unavailable)):
        scripted_client.deletion_requests.cancel("dr_1")
    assert len(script.calls) == 1


def test_a_post_that_changes_nothing_is_retried(script: Script, scripted_client: Client) -> None:
    """A call for predictions is retried, because it changes nothing."""
    pytest.importorskip("lethe.features.predictions")
    script.says(problem(503), Reply(body={"version": 1, "predictions": []}))
    assert scripted_client.models.predictions("mdl_1", records=[[1.0]]).version == 1
    assert len(script.calls) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 422, 500])
def test_refusals_are_final(script: Script, scripted_client: Client, status: int) -> None:
    """A call that was refused, or whose response suggests a defect in the gateway, is not retried."""
    script.says(problem(status))
    with pytest.raises(Problem):
        scripted_client.models.get("mdl_1")
    assert len(script.calls) == 1


@pytest.mark.slow
def test_retry_after_is_respected(script: Script, scripted_client: Client) -> None:
    """If the server asks for a one-second pause, the client waits for at least one second."""
    script.says(problem(429, headers={"Retry-After": "1"}), EMPTY)
    began = time.monotonic()
    assert list(scripted_client.runs.list()) == []
    assert 1.0 <= time.monotonic() - began < 30.0


def test_retry_after_beyond_the_deadline_raises(script: Script, scripted_client: Client) -> None:
    """If Retry-After exceeds the call's time limit, an error that states the requested delay is raised immediately."""
    script.says(problem(503, headers={"Retry-After": "3600"}))
    began = time.monotonic()
    with pytest.raises(Unavailable) as refused:
        list(scripted_client.runs.list())
    assert time.monotonic() - began < 30.0
    assert refused.value.retry_after == 3600.0
    assert len(script.calls) == 1


@pytest.mark.slow
@pytest.mark.parametrize("failure", [DROP, problem(503)])
def test_retries_end(script: Script, failure: Reply) -> None:
    """If a server never responds, the client gives up once the client's time limit has elapsed or, without a time
    limit, after a single call."""
    script.says(failure)
    for seconds, least in ((0.0, 1), (3.0, 3)):
        script.calls.clear()
        began = time.monotonic()
        with Client(script.url, "k", retry_seconds=seconds) as client, pytest.raises((Unreachable, Unavailable)):
            client.models.get("mdl_1")
        assert time.monotonic() - began < seconds + 10.0
        assert len(script.calls) >= least
    assert least <= len(script.calls) < 10


def test_a_silent_server_times_out(script: Script) -> None:
    """An attempt is abandoned once its timeout has elapsed."""
    script.says(Reply(body={}, headers={"Transfer-Encoding": "chunked"}))  # but no chunk follows
    client = Client(script.url, "k", timeout_seconds=0.2, retry_seconds=0.0)
    with client, pytest.raises(Unreachable) as silent:
        client.models.get("mdl_1")
    assert silent.value.code == "unreachable"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Malformed),
        (401, NotAllowed),
        (403, NotAllowed),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (413, Malformed),
        (418, Refused),
        (422, Malformed),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
def test_problems_have_classes(script: Script, status: int, kind: type[Problem]) -> None:
    """An error's class tells the caller what to do about it, and its attributes are taken from the response."""
    script.says(problem(status, code="the_code", errors=[{"path": "body.l2", "message": "too small"}]))
    with Client(script.url, "k", retry_seconds=0.0) as client, pytest.raises(Problem) as refused:
        client.models.get("mdl_1")
    error = refused.value
    assert type(error) is kind
    assert (error.code, error.title, error.status, error.detail) == ("the_code", "Not now", status, "Again.")
    assert error.line == "the_code: Again.; body.l2: too small"


def test_redirects_are_not_followed(script: Script, scripted_client: Client) -> None:
    """A redirect is not followed, because the key is meant only for this gateway, which never redirects."""
    script.says(Reply(status=307, body={}, headers={"Location": f"{script.url}/elsewhere"}))
    with pytest.raises(AnswerInvalid) as refused:
        scripted_client.models.get("mdl_1")
    assert refused.value.line == "answer_invalid: 307 from GET /v1/models/{model_id}"
    assert len(script.calls) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=f"<html>{ANNA}".encode()),
        Reply(body=[ANNA]),
        Reply(body={ANNA: ANNA}),
        Reply(body=REQUEST | {"status": [ANNA]}),
        Reply(body=REQUEST | {"metadata": {ANNA: [ANNA]}}),
        Reply(body=REQUEST | {"due_at": ANNA}),
        Reply(body={name: value for name, value in REQUEST.items() if name != "models"}),
        Reply(status=307, body=ANNA, headers={"Location": f"/{ANNA}"}),
        Reply(status=404, body=f"<html>{ANNA}".encode()),
        Reply(status=404, body={"detail": ANNA}),
        Reply(status=404, body={"title": "", "detail": [ANNA], "code": ANNA}),
        Reply(status=503, body=f"<html>{ANNA}".encode()),
        Reply(body=ANNA, headers={"Content-Encoding": "gzip"}),
        DROP,
    ],
)
def test_problems_do_not_quote_calls_or_responses(script: Script, reply: Reply) -> None:
    """A response that does not come from Lethe is refused, and neither the error nor its traceback contains text from
    the response or the call."""
    script.says(reply)
    calls: list[Callable[[Client], Any]] = [
        lambda client: client.deletion_requests.get(ANNA),
        lambda client: client.deletion_requests.create(subject_id=ANNA),
        lambda client: list(client.deletion_requests.list(subject_id=ANNA)),
        lambda client: client.datasets.subject("ds_1", ANNA),
    ]
    with Client(script.url, "k", retry_seconds=0.0) as client:
        for call in calls:
            with pytest.raises(Problem) as refused:
                call(client)
            said, error = "", refused.value.__cause__ or refused.value.__context__
            while error is not None:  # including causes that a traceback would not show
                said += error.line if isinstance(error, Problem) else str(error)
                error = error.__cause__ or error.__context__
            assert "anna" not in (said + "".join(traceback.format_exception_only(refused.value))).lower()


def test_a_subject_id_in_a_query_is_percent_encoded(script: Script, scripted_client: Client) -> None:
    """A plus sign in a subject id is sent as %2B and a space as %20. A bare + could mean either, so the gateway refuses
    it."""
    script.says(EMPTY)
    assert list(scripted_client.deletion_requests.list(subject_id="ann b+c@example.org", source="a b")) == []
    _, _, query = script.calls[-1].path.partition("?")
    assert "subject_id=ann%20b%2Bc%40example.org" in query.split("&")
    assert "source=a%20b" in query.split("&")


def test_pages_are_fetched_lazily(script: Script, scripted_client: Client) -> None:
    """The second page is requested only when its first item is needed, with the same filters as the first page."""
    script.says(Reply(body={"items": [REQUEST], "next_cursor": "c"}), EMPTY)
    found = iter(scripted_client.deletion_requests.list(source="s"))
    assert script.calls == []
    assert next(found).id == "dr_1"
    assert len(script.calls) == 1
    assert list(found) == []
    path, _, query = script.calls[1].path.partition("?")
    assert (path, set(query.split("&"))) == ("/v1/deletion-requests", {"source=s", "cursor=c"})


def test_subjects_are_not_logged(script: Script, scripted_client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Although some URLs contain a subject id, no log message does, even at the lowest log level. Other uses of httpx
    are logged as usual."""
    caplog.set_level(logging.DEBUG)
    script.says(EMPTY, Reply(body={"num_records": 1}), DROP, Reply(status=202, body=REQUEST), EMPTY)
    list(scripted_client.deletion_requests.list(subject_id=ANNA))
    scripted_client.datasets.subject("ds_1", ANNA)
    made = scripted_client.deletion_requests.create(subject_id=ANNA, external_id=ANNA, metadata={"who": ANNA})
    logging.getLogger("test").info("made %r, %s", made, made)
    assert made.external_id == ANNA
    assert "made DeletionRequestOut(id='dr_1'" in caplog.text
    assert "anna" not in caplog.text.lower()
    httpx.get(script.url, timeout=60.0)
    assert "HTTP Request: GET" in caplog.text


def test_fields_of_a_newer_gateway_are_ignored(script: Script, scripted_client: Client) -> None:
    """Unknown fields in a response are ignored at any depth."""
    owed = {"model_id": "m", "status": "new", "run_id": None, "version": 1, "certificate_id": None, "added": 1}
    script.says(Reply(body=REQUEST | {"status": "never_heard_of", "added": {"a": 1}, "models": [owed]}))
    found = scripted_client.deletion_requests.get("dr_1")
    assert (found.status, found.models[0].status) == ("never_heard_of", "new")


def test_values_are_frozen(script: Script, scripted_client: Client) -> None:
    """The values that the client returns cannot be changed."""
    script.says(Reply(body=REQUEST))
    found = scripted_client.deletion_requests.get("dr_1")
    with pytest.raises(ValidationError, match="frozen"):
        found.status = "completed"  # type: ignore[misc]


def test_ids_cannot_change_the_path(script: Script, scripted_client: Client) -> None:
    """No id can lead to another path, whatever characters it contains."""
    script.says(problem(404))
    for strange in ("a/b", "../models", "a?b=c", "a#b", "a%2Fb", "é"):
        with pytest.raises(NotFound):
            scripted_client.models.get(strange)
        prefix, _, last = script.calls[-1].path.rpartition("/")
        assert prefix == "/v1/models"
        assert not set("?#") & set(last)
    for empty in ("", ".", ".."):
        with pytest.raises(Malformed):
            scripted_client.models.get(empty)
    assert len(script.calls) == 6


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "nonsense", "", "http://", "http://[", "http://127.0.0.1:99999999"])
def test_a_malformed_url_is_refused(url: str) -> None:
    """A malformed URL is refused when the client is created."""
    with pytest.raises(Unreachable) as refused:
        Client(url, "k")
    assert refused.value.line.startswith("unreachable: ")


def test_a_password_in_the_url_is_not_repeated() -> None:
    """Errors contain only the scheme, host and port of the gateway's URL."""
    client = Client("http://user:secret@127.0.0.1:1/prefix", "k", retry_seconds=0.0)
    with client, pytest.raises(Unreachable) as refused:
        client.models.get("mdl_1")
    assert refused.value.line == "unreachable: no answer from http://127.0.0.1:1 (ConnectError)"


@pytest.mark.parametrize("key", ["", " k", "k\n", "k\r\nX: y", "clé"])
def test_a_malformed_key_is_refused(script: Script, key: str) -> None:
    """An API key or idempotency key that is not a valid header value is refused before any HTTP request is sent, and
    the error does not quote it."""
    with pytest.raises(NotAllowed) as refused:
        Client(script.url, key)
    assert refused.value.code == "unauthenticated"
    with Client(script.url, "k") as client, pytest.raises(Malformed):
        client.models.relearn("mdl_1", idempotency_key=key or "\0")
    assert script.calls == []
