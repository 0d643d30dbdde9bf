"""Every named condition as an HTTP problem (RFC 9457): one table from class to status."""

import traceback
from pathlib import Path
from typing import Any

import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from app import errors, telemetry
from app.errors import FieldError, LetheError

STATUS: dict[type[LetheError], int] = {
    errors.InputInvalid: 422,
    errors.CertificateInvalid: 422,
    errors.UploadTooLarge: 413,
    errors.Unauthenticated: 401,
    errors.ScopeMissing: 403,
    errors.NotFound: 404,
    errors.WeightsDestroyed: 410,
    errors.Conflict: 409,
    LetheError: 500,
}
"""A class that is not listed has the status of its nearest listed base."""

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """The body of every error answer."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[dict[str, str]] | None = None


_ANYWHERE: list[type[LetheError]] = [errors.InputInvalid, errors.Unauthenticated, errors.ScopeMissing]


def status_of(error: type[LetheError]) -> int:
    return next(STATUS[base] for base in error.__mro__ if base in STATUS)


def problem(error: LetheError) -> JSONResponse:
    """The answer for a named condition."""
    status = status_of(type(error))
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return _answer(
        status, code=error.code, title=error.title, detail=error.detail, field_errors=error.errors, headers=headers
    )


def responses(*conditions: type[LetheError]) -> dict[int | str, dict[str, Any]]:
    """What a route declares: the conditions it may answer with, besides those every route may."""
    documented: dict[int | str, dict[str, Any]] = {}
    for condition in [*conditions, *_ANYWHERE]:
        entry = documented.setdefault(
            status_of(condition), {"description": "", "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
        )
        entry["description"] = ", ".join(filter(None, [entry["description"], f"`{condition.code}`"]))
    return documented


def install(app: FastAPI) -> None:
    """Answer everything that goes wrong with a problem; none of them repeats what was sent."""

    @app.exception_handler(LetheError)
    def _named(_request: Request, error: LetheError) -> JSONResponse:
        if status_of(type(error)) == 500:
            telemetry.logger().error("gateway.call_failed", error=error.code)
        return problem(error)

    @app.exception_handler(RequestValidationError)
    def _malformed(_request: Request, error: RequestValidationError) -> JSONResponse:
        found = [
            FieldError(".".join(str(part) for part in fault["loc"][1:]) or str(fault["loc"][0]), fault["msg"])
            for fault in error.errors()
        ]
        return problem(errors.InputInvalid("The call does not have the form that the documentation asks for.", found))

    @app.exception_handler(HTTPException)
    def _http(_request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # the framework could not read the body
            return problem(errors.InputInvalid("The body is not what its content type says."))
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        headers = dict(error.headers) if error.headers else None
        return _answer(error.status_code, code=code, title=str(error.detail), detail=str(error.detail), headers=headers)

    @app.exception_handler(sqlalchemy.exc.OperationalError)
    def _database(_request: Request, error: sqlalchemy.exc.OperationalError) -> JSONResponse:
        telemetry.logger().error("gateway.database_unavailable", error=type(error.orig).__name__)
        detail = "The database cannot be reached or is busy. Repeat the call, with its Idempotency-Key if it has one."
        headers = {"Retry-After": "2"}
        return _answer(503, code="unavailable", title="Not available now", detail=detail, headers=headers)


def unexpected(error: Exception) -> JSONResponse:
    """The answer for a defect. What was raised is logged by name and place: its text may quote what was sent."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
    telemetry.logger().error("gateway.call_failed", error=type(error).__name__, places=places)
    return problem(LetheError("The call failed; the log of the gateway names the error. Repeat the call."))


def _answer(
    status: int,
    *,
    code: str,
    title: str,
    detail: str,
    field_errors: tuple[FieldError, ...] = (),
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    body: dict[str, Any] = {"type": f"urn:lethe:problem:{code}", "title": title, "status": status}
    body |= {"detail": detail, "code": code}
    if field_errors or status == 422:
        body["errors"] = [{"path": fault.path, "message": fault.message} for fault in field_errors]
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)
