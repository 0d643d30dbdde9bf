"""Compression of answers: JSON of the API, where the caller takes gzip.

Pages are left as they are. They hold the token of their forms beside words of their address, and somebody who
makes a browser ask for them with such words would learn the token from how long they become (BREACH). The API is asked
with a key that no browser adds by itself.
"""

import gzip

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LEAST = 1024
"""Bytes of an answer that is worth it."""
_LEVEL = 5
_QUICK = 65_536
"""Bytes that are compressed at once, in a millisecond or two; more of them in a thread of their own."""
_KINDS = ("application/json", "application/problem+json")


def takes_gzip(scope: Scope) -> bool:
    """Return True if the caller does."""
    accepted = Headers(scope=scope).get("accept-encoding", "").lower()
    for part in accepted.split(","):
        name, _, parameters = part.partition(";")
        if name.strip() == "gzip":
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class Compression:
    """Compresses JSON that is answered as a whole. What is sent in parts is never held back, and what has an encoding
    already is left alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "HEAD":
            await self._app(scope, receive, send)
            return
        held: Message | None = None

        async def compressed(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_worth_it(message):
                held = message
                return
            if held is not None:
                start, held = held, None
                if not message.get("more_body", False):
                    message = await _compressed(scope, start, message)
                await send(start)
            await send(message)

        await self._app(scope, receive, compressed)


def _is_worth_it(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    kind, length = headers.get("content-type", "").partition(";")[0], headers.get("content-length", "")
    return kind in _KINDS and length.isdigit() and int(length) >= _LEAST and "content-encoding" not in headers


async def _compressed(scope: Scope, start: Message, message: Message) -> Message:
    """The body for this caller; the headers say which it is, and that it depends on them."""
    headers = MutableHeaders(raw=start["headers"])
    headers.add_vary_header("Accept-Encoding")
    if not takes_gzip(scope):
        return message
    body = message["body"]
    if len(body) <= _QUICK:
        body = gzip.compress(body, _LEVEL, mtime=0)
    else:
        body = await run_in_threadpool(gzip.compress, body, _LEVEL, mtime=0)
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(body))
    return {**message, "body": body}
