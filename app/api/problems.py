"""HTTP problems (RFC 9457): responses for named error conditions, invalid input and unexpected errors."""

import errno
import traceback
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException
from starlette.routing import Match, Mount

from app import db, telemetry
from lethe.contract import fields, problems as conditions
from lethe.contract.problems import FieldError, InputInvalid, Problem, RateLimited, ScopeMissing, Unauthenticated

MEDIA_TYPE = "application/problem+json"
_SCHEMA = fields.ProblemBody.model_json_schema()
_MAX_FAULTS = 10
"""Maximum number of faults listed, so that neither the response nor the work for it grows with the call's size."""
_KINDS = {"bool_type": "expected true or false", "bool_parsing": "expected true or false"}
"""Expectations that replace pydantic's messages, keyed by type of fault."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


_ANYWHERE: list[type[Problem]] = [InputInvalid, Unauthenticated, ScopeMissing, RateLimited]


def status_of(error: type[Problem]) -> int:
    """Return the HTTP status of an error condition."""
    return error.status or 500


def problem(error: Problem) -> JSONResponse:
    """Return the response for a named error condition."""
    status = status_of(type(error))
    body: dict[str, Any] = {"type": f"urn:lethe:problem:{error.code}", "title": error.title, "status": status}
    body |= {"detail": error.detail, "code": error.code}
    if error.errors or status == 422:
        body["errors"] = [{"path": fault.path, "message": fault.message} for fault in error.errors]
    return JSONResponse(body, status, headers=_headers(error), media_type=MEDIA_TYPE)


def responses(*conditions: type[Problem]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses for a route's problems: its own and those common to all routes."""
    return declared(*conditions, *_ANYWHERE)


def declared(*conditions: type[Problem]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses for these error conditions, keyed by status code."""
    documented: dict[int | str, dict[str, Any]] = {}
    for condition in conditions:
        empty = {"description": "", "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
        entry = documented.setdefault(status_of(condition), empty)
        entry["description"] = ", ".join(filter(None, [entry["description"], f"`{condition.code}`"]))
    return documented


def faults(error: ValidationError | RequestValidationError, body: Any = None, *, query: Any = None) -> list[FieldError]:
    """Return the first ten faults of the query, or of the body if the query has none, each stating what was expected
    but not the value sent. The types `body` and `query`, if known, supply the field names to suggest."""
    listed = error.errors()
    of_query = [fault for fault in listed if fault["loc"][:1] == ("query",)]
    return [
        FieldError(".".join(map(str, fault["loc"])) or "body", _expectation(fault, query if of_query else body))
        for fault in (of_query or listed)[:_MAX_FAULTS]
    ]


def _expectation(fault: Any, body: Any) -> str:
    """Describe what was expected where Pydantic found `fault`. `body` is the type of the body, if it is known."""
    if fault["type"] == "extra_forbidden" and body is not None:
        *place, name = fault["loc"]
        return f"is no field here: {fields.expected(_known_at(body, place), found=name)}"
    if "Expected UploadFile" in fault["msg"]:
        return "expected a file with a file name (curl -F file=@rows.csv)"
    return _KINDS.get(fault["type"], str(fault["msg"]))


def _known_at(annotation: Any, place: Sequence[str | int]) -> set[str]:
    models = _models(annotation)
    # Indexes of lists and keys of plain objects are not fields.
    for name in place:
        inner = [_fields(model)[str(name)] for model in models if str(name) in _fields(model)]
        models = [model for field in inner for model in _models(field.annotation)] if inner else models
    return {name for model in models for name in _fields(model)}


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the Pydantic models in a type: the type itself, or the models in its lists, mappings or unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in typing.get_args(annotation) for model in _models(inner)]


def install(app: FastAPI) -> None:
    """Respond to every error of `app` with a problem that does not repeat what was sent."""

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
        query = next((parameter.field_info.annotation for parameter in route.dependant.query_params), None)
        listed = [
            FieldError(fault.path.partition(".")[2] or fault.path, fault.message)
            for fault in faults(error, body, query=query)
        ]
        return problem(InputInvalid("The call does not have the form that the documentation asks for.", listed))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> JSONResponse:
        # The framework answers 400 if a form cannot be stored.
        if is_full(error.__cause__):
            return problem(storage_full())
        # The framework could not parse the body.
        if error.status_code == 400:
            return problem(InputInvalid("The body is not what its content type says."))
        if error.status_code == 405:
            methods = ", ".join(_methods_at(request))
            answer = problem(conditions.MethodNotAllowed("This path supports {methods}.", methods=methods))
            answer.headers["Allow"] = methods
            return answer
        return problem(conditions.NotFound("There is nothing at this path."))

    @app.exception_handler(sqlalchemy.exc.OperationalError)
    def _database(_request: Request, error: sqlalchemy.exc.OperationalError) -> JSONResponse:
        return problem(unavailable(error))

    @app.exception_handler(OSError)
    def _disk(_request: Request, error: OSError) -> JSONResponse:
        return problem(storage_full()) if is_full(error) else unexpected(error)


def is_full(error: BaseException | None) -> bool:
    """Return True if an error means that the disk is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def storage_full() -> conditions.StorageFull:
    """Log that the disk is full, and return the matching problem."""
    telemetry.logger().error("gateway.storage_full")
    return conditions.StorageFull()


def _methods_at(request: Request) -> list[str]:
    """Return the methods of all routes at the request's path; GET and HEAD for mounted files."""
    routes = [route for route in request.app.router.routes if not isinstance(route, Mount)]
    methods = [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    return methods or ["GET", "HEAD"]


def unavailable(error: sqlalchemy.exc.OperationalError) -> Problem:
    """Log that the database is unavailable or full, and return the matching problem."""
    if db.is_full(error):
        return storage_full()
    telemetry.logger().error("gateway.database_unavailable", error=type(error.orig).__name__)
    return conditions.Unavailable.database()


def unexpected(error: Exception) -> JSONResponse:
    """Log an unexpected error's type and location, but not its text, which may name people. Return the response."""
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
        case conditions.RequestTimedOut():
            return {"Connection": "close"}
        case conditions.Busy():
            return {"Retry-After": "1"}
        case conditions.StorageFull() | conditions.InstallationMismatch() | conditions.DatabaseDamaged():
            # Retrying is useless until an operator has acted.
            return {"Retry-After": "30"}
        case conditions.Unavailable():
            return {"Retry-After": "2"}
        case _:
            return None
