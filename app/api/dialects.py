"""Foreign protocols over HTTP: bodies exactly as they came, and errors in their own words."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError

from app import telemetry
from app.api import problems
from lethe.contract.problems import InputInvalid, Problem, UploadTooLarge

_MOST_BYTES = 64 * 1024

Words = Callable[[int, dict[str, Any]], Response]
"""A problem (its status, and its JSON) as the protocol says it."""


async def small_body(request: Request) -> bytes:
    """The body of the call, byte by byte. Raises `UploadTooLarge`."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise UploadTooLarge(f"A message has at most {_MOST_BYTES} bytes.")
    return bytes(body)


def speaking(words: Words) -> type[APIRoute]:
    """A route that answers every problem in these words. Malformed input is 400 there, as the protocols have it."""

    def answer(error: Problem) -> Response:
        problem = problems.problem(error)
        said = words(400 if problem.status_code == 422 else problem.status_code, json.loads(bytes(problem.body)))
        kept = {name: problem.headers[name] for name in ("Retry-After", "WWW-Authenticate") if name in problem.headers}
        said.headers.update(kept)
        return said

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            usual = super().get_route_handler()

            async def handler(request: Request) -> Response:
                try:
                    return await usual(request)
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
