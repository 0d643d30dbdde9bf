"""Common parts of external protocols: raw request bodies, request submission, and errors in a protocol's own format."""

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app import telemetry
from app.api import calls, problems
from app.db.tables import DeletionRequest
from app.deletion import service as deletion
from lethe import sockets
from lethe.contract.problems import InputInvalid, Problem, UploadTooLarge

_MAX_BYTES = 64 * 1024

Words = Callable[[int, dict[str, Any]], Response]
"""Function that converts a problem's status and JSON into the protocol's response."""


async def small_body(request: Request) -> bytes:
    """Return the raw body of the call. Raises `UploadTooLarge`."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BYTES:
            raise UploadTooLarge("A message has at most {max_bytes} bytes.", max_bytes=_MAX_BYTES)
    return bytes(body)


def by_kind(call: calls.Call, kind: str) -> str | None:
    """Return `kind` if the tenant's identity map or one of its datasets uses this kind of identifier; None if
    identifiers of this kind serve as subject ids."""
    with call.reading() as session:
        for is_used in sockets.plugs("app.features", "hooks", "IS_KIND_USED"):
            return kind if is_used(session, call.caller.tenant_id, kind) else None
    return None


def submit(
    session: Session,
    call: calls.Call,
    kinds: Mapping[str, str | None],
    *,
    source: str,
    external_id: str,
    regulation: str,
    callback_urls: Sequence[str],
    **protocol_fields: Any,
) -> list[DeletionRequest]:
    """Submit one deletion request per reference, either all or none. If any is refused, raise its error. `kinds` maps
    each reference to the kind of its identifier, or to None for a subject id.

    `protocol_fields` are the other fields of `RequestDraft` that a protocol sets.
    """
    drafts = [
        deletion.RequestDraft(
            by=call.caller.actor,
            policy=call.caller.policy,
            maker=call.caller.maker,
            subject_ref=ref,
            kind=kind,
            dataset_ids=None,
            regulation=regulation,
            ground=None,
            external_id=external_id,
            callback_urls=callback_urls,
            source=source,
            **protocol_fields,
        )
        for ref, kind in kinds.items()
    ]
    requests = []
    for result in deletion.submit_all(session, drafts):
        if isinstance(result, Problem):
            raise result
        requests.append(result.request)
    return requests


def speaking(words: Words) -> type[APIRoute]:
    """Return a route class that formats every problem with `words`. Malformed input gets status 400, as the protocols
    require."""

    def answer(error: Problem) -> Response:
        problem = problems.problem(error)
        status = 400 if problem.status_code == 422 else problem.status_code
        response = words(status, json.loads(bytes(problem.body)))
        names = [name for name in ("Retry-After", "WWW-Authenticate") if name in problem.headers]
        response.headers.update({name: problem.headers[name] for name in names})
        return response

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handler(request: Request) -> Response:
                try:
                    return await handle(request)
                except Problem as error:
                    if problems.status_of(type(error)) == 500:
                        telemetry.logger().error("gateway.call_failed", error=error.code)
                    return answer(error)
                except RequestValidationError:
                    return answer(InputInvalid("The call does not have the form that the protocol asks for."))
                except OperationalError as error:
                    return answer(problems.unavailable(error))
                except OSError as error:
                    if not problems.is_full(error):
                        raise
                    return answer(problems.storage_full())

            return handler

    return Route
