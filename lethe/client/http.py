"""HTTP calls to one gateway with one API key, retried where safe, with parsed responses; blocking or awaited."""

import functools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import anyio
import httpx
from pydantic import BaseModel

from lethe import errors, reading
from lethe.client.waiting import STATUSES, Patience, retry_after_in
from lethe.contract.fields import PageOut, ProblemBody
from lethe.contract.operation import Operation
from lethe.contract.problems import FieldError, InputInvalid, Problem, Unauthenticated, Unavailable, of_answer

T = TypeVar("T")

_CONNECT_SECONDS = 5.0
_trusted = functools.cache(httpx.create_ssl_context)
"""Return the certificates of trusted authorities, read only once per process because that takes 30 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options for a call. `idempotency_key` defaults to a new key. `within` is the limit in seconds for all attempts
    together, `timeout_seconds` for each. `content` is a non-JSON body as httpx accepts it, with its `headers`."""

    idempotency_key: str | None = None
    within: float | None = None
    timeout_seconds: float | None = None
    headers: dict[str, str] | None = None
    content: dict[str, Any] | None = None


_DEFAULT = Options()


class Calls:
    """Calls to one gateway, written once as coroutines. With a blocking httpx client they never suspend, so that
    `drive` can run them. Every failure raises a `Problem`."""

    def __init__(
        self, client: type[Any], url: str, api_key: str, *, timeout_seconds: float, retry_seconds: float
    ) -> None:
        if not _fits_header(api_key):
            raise Unauthenticated("The API key is empty, or has characters that no key has.")
        self._origin = _origin(url)
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._blocks = client is httpx.Client
        self.httpx: Any = client(base_url=url, headers={"Authorization": f"Bearer {api_key}"}, verify=_trusted())
        logging.getLogger("httpx").addFilter(_UNLOGGED)

    def _prepared(
        self, operation: Operation[..., Any], ids: tuple[str | int, ...], arguments: BaseModel | None, options: Options
    ) -> tuple[dict[str, Any], Patience]:
        """Return the httpx arguments for an attempt, and the call's `Patience`."""
        headers = dict(options.headers or {})
        if operation.keyed:
            headers["Idempotency-Key"] = options.idempotency_key or secrets.token_hex(16)
        if not all(map(_fits_header, headers.values())):
            raise InputInvalid("Expected an idempotency key of visible ASCII characters.")
        at_most = float("inf") if options.within is None else options.within
        # httpx writes a space as "+", which a gateway refuses in a subject id.
        query = str(httpx.QueryParams(_part(arguments, operation.query))).replace("+", "%20")
        request: dict[str, Any] = {
            "method": operation.method,
            "url": _path(operation, ids) + (f"?{query}" if query else ""),
            "headers": headers,
            "timeout": httpx.Timeout(
                min(options.timeout_seconds or self._timeout_seconds, at_most), connect=_CONNECT_SECONDS
            ),
        }
        if operation.takes is not None and options.content is None:
            request["json"] = _part(arguments, operation.takes)
        return request | (options.content or {}), Patience(seconds=min(self._retry_seconds, at_most))

    def _pause(self, operation: Operation[..., Any], problem: Problem, patience: Patience) -> float:
        """Return the seconds until the next attempt, or raise `problem` if no further attempt is allowed."""
        may_pass = problem.status is None or problem.status in STATUSES
        pause = patience.next(problem.retry_after) if operation.repeatable and may_pass else None
        if pause is None:
            raise problem
        return pause

    @contextmanager
    def _named(self, operation: Operation[..., Any]) -> Iterator[None]:
        """Convert connection errors into a `Problem`."""
        try:
            yield
        except UnicodeEncodeError:
            raise InputInvalid(f"Something sent to {operation} is not Unicode text.") from None
        except httpx.DecodingError as error:
            raise errors.AnswerInvalid(f"the answer to {operation} cannot be decoded") from error
        except httpx.TransportError as error:
            raise errors.Unreachable(f"no answer from {self._origin} ({type(error).__name__})") from error

    async def call(
        self,
        operation: Operation[..., T],
        *ids: str | int,
        arguments: BaseModel | None = None,
        options: Options = _DEFAULT,
    ) -> T:
        answer = await self._answer(operation, ids, arguments, options)
        return reading.read(operation.gives, answer.content, of=str(operation))

    async def pages(
        self, operation: Operation[..., PageOut[T]], *ids: str | int, arguments: BaseModel | None = None
    ) -> AsyncGenerator[T]:
        """Yield every item of a list. A page is fetched when its first item is consumed."""
        page = await self.call(operation, *ids, arguments=arguments)
        while True:
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            arguments = (arguments or operation.query()).model_copy(update={"cursor": page.next_cursor})
            page = await self.call(operation, *ids, arguments=arguments)

    async def pieces(
        self, operation: Operation[..., bytes], *ids: str | int, arguments: BaseModel | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the response in pieces, regardless of its length. A partly received response is not requested again: an
        interruption raises `Unreachable`."""
        answer = await self._answer(operation, ids, arguments, _DEFAULT, stream=True)
        try:
            with self._named(operation):
                async with aclosing(_each(answer.iter_bytes()) if self._blocks else answer.aiter_bytes()) as pieces:
                    async for piece in pieces:
                        yield piece
        finally:
            await self._done(answer.close() if self._blocks else answer.aclose())

    async def _answer(
        self,
        operation: Operation[..., Any],
        ids: tuple[str | int, ...],
        arguments: BaseModel | None,
        options: Options,
        *,
        stream: bool = False,
    ) -> Any:
        """Return the response. This works with either kind of httpx client."""
        request, patience = self._prepared(operation, ids, arguments, options)
        while True:
            try:
                with self._named(operation):
                    with _unlogged():
                        answer = await self._done(self.httpx.send(self.httpx.build_request(**request), stream=stream))
                    if answer.is_success:
                        return answer
                    await self._done(answer.read() if self._blocks else answer.aread())
                raise _problem(operation, answer)
            except (errors.Unreachable, Unavailable) as problem:
                await self.sleep(self._pause(operation, problem, patience))

    async def sleep(self, seconds: float) -> None:
        if self._blocks:
            time.sleep(seconds)
        else:
            await anyio.sleep(seconds)

    async def _done(self, result: Any) -> Any:
        return result if self._blocks else await result


class AsyncHttp(Calls):
    """Calls that are awaited, under asyncio or trio."""

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float, retry_seconds: float) -> None:
        super().__init__(httpx.AsyncClient, url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)

    async def close(self) -> None:
        await self.httpx.aclose()


class Http:
    """Calls that block until they return their results."""

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float, retry_seconds: float) -> None:
        self.calls = Calls(httpx.Client, url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)

    def close(self) -> None:
        self.calls.httpx.close()

    def call(self, operation: Operation[..., T], *ids: str | int, **options: Any) -> T:
        return drive(self.calls.call(operation, *ids, **options))

    def pages(self, operation: Operation[..., PageOut[T]], *ids: str | int, **options: Any) -> Iterator[T]:
        return drive_each(self.calls.pages(operation, *ids, **options))

    def pieces(self, operation: Operation[..., bytes], *ids: str | int, **options: Any) -> Iterator[bytes]:
        return drive_each(self.calls.pieces(operation, *ids, **options))


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of blocking calls to completion, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise RuntimeError("a coroutine of blocking calls was suspended")


def drive_each(items: AsyncGenerator[T]) -> Iterator[T]:
    """Iterate over an asynchronous generator that makes only blocking calls, without an event loop."""
    try:
        while True:
            yield drive(_next(items))
    except StopAsyncIteration:
        return
    finally:
        drive(items.aclose())


async def _each(items: Iterator[T]) -> AsyncGenerator[T]:
    for item in items:
        yield item


async def _next(items: AsyncGenerator[T]) -> T:
    return await anext(items)


def _path(operation: Operation[..., Any], ids: tuple[str | int, ...]) -> str:
    """Return the path of a call. Raises `InputInvalid` for an id that cannot be part of a path."""
    wrong = [name for name, value in zip(operation.ids, ids, strict=True) if not _is_id(value)]
    if wrong:
        faults = [FieldError(name, "expected an id: Unicode text, neither empty nor dots") for name in wrong]
        raise InputInvalid("The arguments are not what the call takes.", faults)
    values = iter(ids)
    parts = operation.path.split("/")
    return "/".join(quote(str(next(values)), safe="") if part.startswith("{") else part for part in parts)


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return value not in ("", ".", "..") and not any("\ud800" <= character <= "\udfff" for character in value)
    return isinstance(value, int)


def _part(arguments: BaseModel | None, kind: type[BaseModel] | None) -> dict[str, Any]:
    """Return the fields of `kind` that were set in `arguments`; the gateway chooses defaults for the rest."""
    if arguments is None or kind is None:
        return {}
    required = {name for name, field in kind.model_fields.items() if field.is_required()} - arguments.model_fields_set
    fields = arguments.model_dump(mode="json", by_alias=True, exclude_unset=True, include=set(kind.model_fields))
    fields |= arguments.model_dump(mode="json", by_alias=True, include=required)
    return {name: value for name, value in fields.items() if value is not None}


def _problem(operation: Operation[..., Any], answer: httpx.Response) -> Problem:
    # A gateway never redirects.
    if answer.status_code < 400:
        return errors.AnswerInvalid(f"{answer.status_code} from {operation}")
    retry_after = retry_after_in(answer.headers.get("Retry-After"))
    try:
        body = reading.read(ProblemBody, answer.content, of=str(operation))
    # The answer comes from a proxy or another server, which may quote anything.
    except errors.AnswerInvalid:
        detail = f"{answer.status_code} from {operation}"
        return of_answer(answer.status_code, "http_error", "", detail, (), retry_after=retry_after)
    faults = [FieldError(error.get("path", ""), error.get("message", "")) for error in body.errors or ()]
    return of_answer(answer.status_code, body.code, body.title, body.detail, faults, retry_after=retry_after)


def _origin(url: str) -> str:
    """Return scheme, host and port without a password. Raises `Unreachable` if `url` is not a URL."""
    try:
        # Both parsers must accept the URL.
        parsed, _port = httpx.URL(url), urlsplit(url).port
    except (httpx.InvalidURL, ValueError) as error:
        raise errors.Unreachable("Expected a URL such as http://127.0.0.1:8000") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise errors.Unreachable("Expected a URL such as http://127.0.0.1:8000")
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii')}"


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable() and text.strip() == text != ""


_calling: ContextVar[bool] = ContextVar("lethe_calling", default=False)


class _Unlogged(logging.Filter):
    """Filter that silences httpx during a call: httpx logs URLs, and some of Lethe's URLs name people."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _calling.get()


_UNLOGGED = _Unlogged()


@contextmanager
def _unlogged() -> Iterator[None]:
    token = _calling.set(True)
    try:
        yield
    finally:
        _calling.reset(token)
