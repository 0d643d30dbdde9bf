"""One gateway and one API key: makes calls, again where that is safe, and reads the answers; blocking, or awaited."""

import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import anyio
import httpx
from pydantic import BaseModel

from lethe.contract.fields import PageOut, ProblemBody
from lethe.contract.operation import Operation
from lethe.contract.problems import FieldError, InputInvalid, Problem, Unauthenticated, Unavailable, of_answer
from lethe.errors import AnswerInvalid, Unreachable
from lethe.reading import read
from lethe.retries import STATUSES, Patience, retry_after_in

T = TypeVar("T")

_CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a call. `idempotency_key`: default a new one; `within`: seconds, at most, for all attempts;
    `timeout_seconds`: of one; `content`: a body that is no JSON, with its `headers`, or what httpx takes."""

    idempotency_key: str | None = None
    within: float | None = None
    timeout_seconds: float | None = None
    headers: dict[str, str] | None = None
    content: dict[str, Any] | None = None


_DEFAULT = Options()


class _Calls:
    """Everything about calls but the waiting."""

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float, retry_seconds: float) -> None:
        if not _fits_header(api_key):
            raise Unauthenticated("The API key is empty, or has characters that no key has.")
        self._origin = _origin(url)
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._client_options: dict[str, Any] = {"base_url": url, "headers": {"Authorization": f"Bearer {api_key}"}}
        logging.getLogger("httpx").addFilter(_UNLOGGED)

    def _prepared(
        self, operation: Operation[..., Any], ids: tuple[str | int, ...], given: BaseModel | None, options: Options
    ) -> tuple[dict[str, Any], Patience]:
        """The arguments of httpx for one attempt, and how long attempts go on."""
        headers = dict(options.headers or {})
        if operation.keyed:
            headers["Idempotency-Key"] = options.idempotency_key or secrets.token_hex(16)
        if not all(map(_fits_header, headers.values())):
            raise InputInvalid("Expected an idempotency key of visible ASCII characters.")
        at_most = float("inf") if options.within is None else options.within
        request: dict[str, Any] = {
            "method": operation.method,
            "url": _path(operation, ids),
            "params": _part(given, operation.query),
            "headers": headers,
            "timeout": httpx.Timeout(
                min(options.timeout_seconds or self._timeout_seconds, at_most), connect=_CONNECT_SECONDS
            ),
        }
        if operation.takes is not None and options.content is None:
            request["json"] = _part(given, operation.takes)
        return request | (options.content or {}), Patience(seconds=min(self._retry_seconds, at_most))

    def _pause(self, operation: Operation[..., Any], problem: Problem, patience: Patience) -> float:
        """Seconds until the next attempt. Raises `problem` where there is none."""
        may_pass = problem.status is None or problem.status in STATUSES
        pause = patience.next(problem.retry_after) if operation.repeatable and may_pass else None
        if pause is None:
            raise problem
        return pause

    @contextmanager
    def _named(self, operation: Operation[..., Any]) -> Iterator[None]:
        """Name what goes wrong on the way there and back."""
        try:
            yield
        except UnicodeEncodeError:
            raise InputInvalid(f"Something sent to {operation} is not Unicode text.") from None
        except httpx.DecodingError as error:
            raise AnswerInvalid(f"the answer to {operation} cannot be decoded") from error
        except httpx.TransportError as error:
            raise Unreachable(f"no answer from {self._origin} ({type(error).__name__})") from error


class Http(_Calls):
    """Calls that block. Raises a `Problem` for everything that is not an answer."""

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float, retry_seconds: float) -> None:
        super().__init__(url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)
        self._httpx = httpx.Client(**self._client_options)

    def close(self) -> None:
        self._httpx.close()

    def call(
        self, operation: Operation[..., T], *ids: str | int, given: BaseModel | None = None, options: Options = _DEFAULT
    ) -> T:
        return read(operation.gives, self._answer(operation, ids, given, options).content, of=str(operation))

    def pages(
        self, operation: Operation[..., PageOut[T]], *ids: str | int, given: BaseModel | None = None
    ) -> Iterator[T]:
        """Every item of a list; a page is fetched when its first item is asked for."""
        page = self.call(operation, *ids, given=given)
        yield from page.items
        while page.next_cursor is not None:
            page = self.call(operation, *ids, given=_next_page(operation, given, page.next_cursor))
            yield from page.items

    def pieces(
        self, operation: Operation[..., bytes], *ids: str | int, given: BaseModel | None = None
    ) -> Iterator[bytes]:
        """The answer, piece by piece, however long it is. Once it has begun it is not asked for again: what breaks off
        raises `Unreachable`."""
        answer = self._answer(operation, ids, given, _DEFAULT, stream=True)
        with closing(answer), self._named(operation):
            yield from answer.iter_bytes()

    def _answer(
        self,
        operation: Operation[..., Any],
        ids: tuple[str | int, ...],
        given: BaseModel | None,
        options: Options,
        *,
        stream: bool = False,
    ) -> httpx.Response:
        request, patience = self._prepared(operation, ids, given, options)
        while True:
            try:
                with self._named(operation):
                    with _unlogged():
                        answer = self._httpx.send(self._httpx.build_request(**request), stream=stream)
                    if answer.is_success:
                        return answer
                    answer.read()
                raise _problem(operation, answer)
            except (Unreachable, Unavailable) as problem:
                time.sleep(self._pause(operation, problem, patience))


class AsyncHttp(_Calls):
    """Calls that are awaited, under asyncio or trio. Raises a `Problem` for everything that is not an answer."""

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float, retry_seconds: float) -> None:
        super().__init__(url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)
        self._httpx = httpx.AsyncClient(**self._client_options)

    async def close(self) -> None:
        await self._httpx.aclose()

    async def call(
        self, operation: Operation[..., T], *ids: str | int, given: BaseModel | None = None, options: Options = _DEFAULT
    ) -> T:
        answer = await self._answer(operation, ids, given, options)
        return read(operation.gives, answer.content, of=str(operation))

    async def pages(
        self, operation: Operation[..., PageOut[T]], *ids: str | int, given: BaseModel | None = None
    ) -> AsyncIterator[T]:
        """Every item of a list; a page is fetched when its first item is asked for."""
        page = await self.call(operation, *ids, given=given)
        while True:
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            page = await self.call(operation, *ids, given=_next_page(operation, given, page.next_cursor))

    async def pieces(
        self, operation: Operation[..., bytes], *ids: str | int, given: BaseModel | None = None
    ) -> AsyncIterator[bytes]:
        """The answer, piece by piece, however long it is."""
        answer = await self._answer(operation, ids, given, _DEFAULT, stream=True)
        with self._named(operation):
            async with aclosing(answer):
                async for piece in answer.aiter_bytes():
                    yield piece

    async def _answer(
        self,
        operation: Operation[..., Any],
        ids: tuple[str | int, ...],
        given: BaseModel | None,
        options: Options,
        *,
        stream: bool = False,
    ) -> httpx.Response:
        request, patience = self._prepared(operation, ids, given, options)
        while True:
            try:
                with self._named(operation):
                    with _unlogged():
                        answer = await self._httpx.send(self._httpx.build_request(**request), stream=stream)
                    if answer.is_success:
                        return answer
                    await answer.aread()
                raise _problem(operation, answer)
            except (Unreachable, Unavailable) as problem:
                await anyio.sleep(self._pause(operation, problem, patience))


def _path(operation: Operation[..., Any], ids: tuple[str | int, ...]) -> str:
    """The path of a call. Raises `InputInvalid` for an id that cannot be part of one."""
    wrong = [name for name, one in zip(operation.ids, ids, strict=True) if not _is_id(one)]
    if wrong:
        faults = [FieldError(name, "expected an id: Unicode text, neither empty nor dots") for name in wrong]
        raise InputInvalid("The arguments are not what the call takes.", faults)
    given = iter(ids)
    parts = operation.path.split("/")
    return "/".join(quote(str(next(given)), safe="") if part.startswith("{") else part for part in parts)


def _is_id(given: Any) -> bool:
    if isinstance(given, str):
        return given not in ("", ".", "..") and not any("\ud800" <= one <= "\udfff" for one in given)
    return isinstance(given, int)


def _part(given: BaseModel | None, kind: type[BaseModel] | None) -> dict[str, Any]:
    """The part of `given` that was set of the fields of `kind`: the rest is for the gateway to choose."""
    if given is None or kind is None:
        return {}
    required = {name for name, field in kind.model_fields.items() if field.is_required()} - given.model_fields_set
    said = given.model_dump(mode="json", by_alias=True, exclude_unset=True, include=set(kind.model_fields))
    said |= given.model_dump(mode="json", by_alias=True, include=required)
    return {name: value for name, value in said.items() if value is not None}


def _next_page(operation: Operation[..., Any], given: BaseModel | None, cursor: str) -> BaseModel:
    return (given or operation.query()).model_copy(update={"cursor": cursor})


def _problem(operation: Operation[..., Any], answer: httpx.Response) -> Problem:
    if answer.status_code < 400:  # no gateway sends callers elsewhere
        return AnswerInvalid(f"{answer.status_code} from {operation}")
    retry_after = retry_after_in(answer.headers.get("Retry-After"))
    try:
        said = read(ProblemBody, answer.content, of=str(operation))
    except AnswerInvalid:  # a proxy's, or of unknown origin: it may quote anything
        detail = f"{answer.status_code} from {operation}"
        return of_answer(answer.status_code, "http_error", "", detail, (), retry_after=retry_after)
    faults = [FieldError(one.get("path", ""), one.get("message", "")) for one in said.errors or ()]
    return of_answer(answer.status_code, said.code, said.title, said.detail, faults, retry_after=retry_after)


def _origin(url: str) -> str:
    """Scheme, host and port: without a password, if there is one. Raises `Unreachable` if it is no URL."""
    try:
        parsed, _port = httpx.URL(url), urlsplit(url).port  # what either refuses is none
    except (httpx.InvalidURL, ValueError) as error:
        raise Unreachable("Expected a URL such as http://127.0.0.1:8000") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise Unreachable("Expected a URL such as http://127.0.0.1:8000")
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii')}"


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable() and text.strip() == text != ""


_calling: ContextVar[bool] = ContextVar("lethe_calling", default=False)


class _Unlogged(logging.Filter):
    """httpx logs the URL of every call, and some of ours name people: while one is made, it logs nothing."""

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
