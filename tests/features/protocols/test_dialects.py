"""Raw bodies, parsed messages, and problems in the format of a protocol."""

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from app import errors
from app.features.protocols.dialects import small_body, speaking
from app.features.protocols.drp import Exercise
from app.features.protocols.opendsr import RawIdentity
from app.features.protocols.parsing import parsed
from lethe.contract import problems
from lethe.contract.problems import FieldError
from lethe.features.protocols.contract import MessageRefused


def words(status: int, problem: dict[str, Any]) -> Response:
    return JSONResponse({"said": [problem["code"], *[fault["path"] for fault in problem.get("errors", ())]]}, status)


RAISED: dict[str, tuple[Exception, int, list[str]]] = {
    "malformed": (problems.InputInvalid("x", [FieldError("a.b", "y")]), 400, ["input_invalid", "a.b"]),
    "nobody": (problems.Unauthenticated("x"), 401, ["unauthenticated"]),
    "refused": (MessageRefused("x"), 403, ["message_refused"]),
    "unknown": (problems.RequestUnknown("x"), 404, ["request_unknown"]),
    "late": (problems.TransitionForbidden("x"), 409, ["transition_forbidden"]),
    "often": (problems.RateLimited("x", retry_after=7), 429, ["rate_limited"]),
    "defect": (errors.SigningUnusable("x"), 500, ["signing_unusable"]),
    "away": (OperationalError("SELECT secret", {}, Exception("secret")), 503, ["unavailable"]),
}


@pytest.fixture(scope="module")
def client() -> TestClient:
    """Return a client for an application whose responses have this format."""
    router = APIRouter(route_class=speaking(words))

    @router.get("/raised/{name}")
    def raise_it(name: str) -> None:
        raise RAISED[name][0]

    @router.get("/typed")
    def typed(number: int) -> None:
        pass

    @router.post("/echo")
    def echo(body: Annotated[bytes, Depends(small_body)]) -> Response:
        return Response(body)

    app = FastAPI()
    app.include_router(router)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize("name", RAISED)
def test_every_problem_has_the_protocols_format(client: TestClient, name: str) -> None:
    """Every problem is returned in the protocol's format. The status is 400 for malformed input and unchanged for all
    other problems."""
    _, status, said = RAISED[name]
    answer = client.get(f"/raised/{name}")
    assert (answer.status_code, answer.json()) == (status, {"said": said})


def test_authentication_and_retry_headers_are_kept(client: TestClient) -> None:
    """Problems keep their WWW-Authenticate and Retry-After headers."""
    assert client.get("/raised/nobody").headers["WWW-Authenticate"] == "Bearer"
    assert client.get("/raised/often").headers["Retry-After"] == "7"
    assert client.get("/raised/away").headers["Retry-After"] == "2"


def test_framework_errors_have_the_same_format(client: TestClient) -> None:
    """Input that the web framework refuses is reported in the protocol's format and is not quoted."""
    answer = client.get("/typed", params={"number": "secret"})
    assert (answer.status_code, answer.json()) == (400, {"said": ["input_invalid"]})


def test_a_raw_body_is_returned_unchanged(client: TestClient) -> None:
    """A raw body of any content type is passed on byte for byte. Bodies longer than 64 KiB are refused."""
    body = bytes(range(256)) * 256
    assert client.post("/echo", content=body).content == body
    answer = client.post("/echo", content=body + b"x")
    assert (answer.status_code, answer.json()) == (413, {"said": ["upload_too_large"]})


def test_parsed_strings_are_not_cached() -> None:
    """Parsing the same value twice returns two separate strings, because no cache keeps personal data in memory."""
    email = b'"somebody@example.com"'
    identity = b'{"identity_type": "email", "identity_format": "raw", "identity_value": %s}' % email
    assert parsed(RawIdentity, identity).identity_value is not parsed(RawIdentity, identity).identity_value
    times = b'"issued-at": "2026-01-01T00:00:00Z", "expires-at": "2026-01-01T00:01:00Z", "drp.version": "1.0"'
    exercise = b'{"agent-id": "a", "business-id": "b", %s, "exercise": "deletion", "email": %s}' % (times, email)
    assert parsed(Exercise, exercise).email is not parsed(Exercise, exercise).email
