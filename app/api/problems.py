"""Named conditions as HTTP problems (RFC 9457)."""

import errno
import traceback
from pathlib import Path
from typing import Any

import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Mount

from app import db, telemetry
from app.api import fields
from lethe.contract.fields import ProblemBody
from lethe.contract.problems import (
    Busy,
    DatabaseDamaged,
    FieldError,
    InputInvalid,
    InstallationMismatch,
    MethodNotAllowed,
    NotFound,
    Problem,
    RateLimited,
    ScopeMissing,
    StorageFull,
    Unauthenticated,
    Unavailable,
)

MEDIA_TYPE = "application/problem+json"
_MOST_FAULTS = 10
"""Limit for faults of a query: an answer does not grow with what was sent."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


_ANYWHERE: list[type[Problem]] = [InputInvalid, Unauthenticated, ScopeMissing, RateLimited]


def status_of(error: type[Problem]) -> int:
    """The HTTP status of a condition."""
    return error.status or 500


def problem(error: Problem) -> JSONResponse:
    """The answer for a named condition."""
    status = status_of(type(error))
    body: dict[str, Any] = {"type": f"urn:lethe:problem:{error.code}", "title": error.title, "status": status}
    body |= {"detail": error.detail, "code": error.code}
    if error.errors or status == 422:
        body["errors"] = [{"path": fault.path, "message": fault.message} for fault in error.errors]
    return JSONResponse(body, status, headers=_headers(error), media_type=MEDIA_TYPE)


def responses(*conditions: type[Problem]) -> dict[int | str, dict[str, Any]]:
    """The answers that a route declares: the conditions it may answer with, besides those every route may."""
    return declared(*conditions, *_ANYWHERE)


def declared(*conditions: type[Problem]) -> dict[int | str, dict[str, Any]]:
    """Conditions as an OpenAPI document has them, by status."""
    documented: dict[int | str, dict[str, Any]] = {}
    for condition in conditions:
        entry = documented.setdefault(
            status_of(condition),
            {"description": "", "content": {MEDIA_TYPE: {"schema": ProblemBody.model_json_schema()}}},
        )
        entry["description"] = ", ".join(filter(None, [entry["description"], f"`{condition.code}`"]))
    return documented


def faults(error: ValidationError | RequestValidationError, body: Any = None, *, query: Any = None) -> list[FieldError]:
    """The places where a call is wrong, and what was expected there; nothing of what was sent. `body`, `query`: their
    types, if they are known, from which follows what a field may be called."""
    return [
        FieldError(
            ".".join(map(str, fault["loc"])) or "body",
            fields.expectation(fault, query if fault["loc"][:1] == ("query",) else body),
        )
        for fault in error.errors()
    ]


def install(app: FastAPI) -> None:
    """Answer everything that goes wrong with a problem; none of them repeats what was sent."""

    @app.exception_handler(Problem)
    def _named(_request: Request, error: Problem) -> JSONResponse:
        if status_of(type(error)) == 500:
            telemetry.logger().error("gateway.call_failed", error=error.code)
        return problem(error)

    @app.exception_handler(RequestValidationError)
    def _malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        route = request.scope["route"]
        field = getattr(route, "body_field", None)
        body = None if field is None else field.field_info.annotation
        query = next((one.field_info.annotation for one in route.dependant.query_params), None)
        found = faults(error, body, query=query)
        of_query = [fault for fault in found if fault.path.startswith("query.")]
        found = [
            FieldError(fault.path.partition(".")[2] or fault.path, fault.message)
            for fault in of_query[:_MOST_FAULTS] or found
        ]
        return problem(InputInvalid("The call does not have the form that the documentation asks for.", found))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> JSONResponse:
        if is_full(error.__cause__):  # the framework takes whatever goes wrong with a form for the caller's fault
            return problem(storage_full())
        if error.status_code == 400:  # the framework could not read the body
            return problem(InputInvalid("The body is not what its content type says."))
        if error.status_code == 405:
            known = ", ".join(_methods_at(request))
            answer = problem(MethodNotAllowed(f"This path knows {known}."))
            answer.headers["Allow"] = known
            return answer
        return problem(NotFound("There is nothing at this path."))

    @app.exception_handler(sqlalchemy.exc.OperationalError)
    def _database(_request: Request, error: sqlalchemy.exc.OperationalError) -> JSONResponse:
        return problem(unavailable(error))

    @app.exception_handler(OSError)
    def _disk(_request: Request, error: OSError) -> JSONResponse:
        return problem(storage_full()) if is_full(error) else unexpected(error)


def is_full(error: BaseException | None) -> bool:
    """Return True if something could not be written for lack of room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def storage_full() -> StorageFull:
    """The condition that the disk is in, which is logged."""
    telemetry.logger().error("gateway.storage_full")
    return StorageFull(
        "There is no room to store this. Repeat the call, with its Idempotency-Key if it has one, when there is."
    )


def _methods_at(request: Request) -> list[str]:
    """The methods of a path, over all routes that it has. What is mounted there is read alone."""
    routes = [route for route in request.app.router.routes if not isinstance(route, Mount)]
    known = [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    return known or ["GET", "HEAD"]


def unavailable(error: sqlalchemy.exc.OperationalError) -> Unavailable:
    """The condition that the database is in, which is logged."""
    if db.is_full(error):
        return storage_full()
    telemetry.logger().error("gateway.database_unavailable", error=type(error.orig).__name__)
    return Unavailable(
        "The database cannot be reached or is busy. Repeat the call, with its Idempotency-Key if it has one."
    )


def unexpected(error: Exception) -> JSONResponse:
    """The answer for a defect. What was raised is logged by name and place: its text may quote what was sent."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
    telemetry.logger().error("gateway.call_failed", error=type(error).__name__, places=places)
    return problem(Problem("The call failed; the log of the gateway names the error. Repeat the call."))


def _headers(error: Problem) -> dict[str, str] | None:
    match error:
        case Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case RateLimited():
            return {"Retry-After": str(error.retry_after)}
        case Busy():
            return {"Retry-After": "1"}
        case StorageFull() | InstallationMismatch() | DatabaseDamaged():
            return {"Retry-After": "30"}  # somebody has to do something first
        case Unavailable():
            return {"Retry-After": "2"}
        case _:
            return None
