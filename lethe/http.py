"""One gateway and one API key: makes calls, again where that is safe, and reads the answers."""

import logging
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from lethe import errors
from lethe.endpoints import Endpoint, given
from lethe.errors import AnswerInvalid, FieldError, Malformed, NotAllowed, Problem, Unavailable, Unreachable
from lethe.retries import STATUSES, Patience, retry_after_in
from lethe.values import Page, read

T = TypeVar("T")

_CONNECT_SECONDS = 5.0


class Http:
    """Raises a `Problem` for everything that is not an answer. `retry_seconds`: how long a call may be made again."""

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float, retry_seconds: float) -> None:
        if not _fits_header(api_key):
            raise NotAllowed("unauthenticated", "The API key is empty, or has characters that no key has.")
        self._origin = _origin(url)
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._httpx = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {api_key}"})
        logging.getLogger("httpx").addFilter(_UNLOGGED)

    def close(self) -> None:
        self._httpx.close()

    def call(self, endpoint: Endpoint[T], *ids: str | int, **asked: Any) -> T:
        """The answer to a call. `asked`: what httpx takes (`params`, `json`, ...), `content_type`, `idempotency_key`
        (default: a new one), `within` (seconds, at most, for all attempts), `timeout_seconds` (of one)."""
        return read(endpoint.answer, self._answer(endpoint, *ids, **asked).content, of=endpoint.name)

    def delete(self, endpoint: Endpoint[None], *ids: str | int) -> None:
        self._answer(endpoint, *ids)

    def download(self, endpoint: Endpoint[bytes], *ids: str | int) -> bytes:
        return self._answer(endpoint, *ids).content

    def pieces(self, endpoint: Endpoint[bytes], *ids: str | int, **query: str | int | None) -> Iterator[bytes]:
        """The answer, piece by piece, however long it is. Once it has begun it is not asked for again: what breaks off
        raises `Unreachable`."""
        answer = self._answer(endpoint, *ids, stream=True, params=given(**query))
        with closing(answer), self._named(endpoint):
            yield from answer.iter_bytes()

    def pages(self, endpoint: Endpoint[Page[T]], *ids: str | int, **query: str | int | None) -> Iterator[T]:
        """Every item of a list; a page is fetched when its first item is asked for."""
        cursor: str | None = None
        while True:
            page = self.call(endpoint, *ids, params=given(**query, cursor=cursor))
            yield from page.items
            if (cursor := page.next_cursor) is None:
                return

    def _answer(
        self,
        endpoint: Endpoint[Any],
        *ids: str | int,
        idempotency_key: str | None = None,
        within: float | None = None,
        timeout_seconds: float | None = None,
        content_type: str | None = None,
        **content: Any,
    ) -> httpx.Response:
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)} if endpoint.keyed else {}
        headers |= {"Content-Type": content_type} if content_type else {}
        if not all(map(_fits_header, headers.values())):
            raise Malformed("input_invalid", "Expected an idempotency key of visible ASCII characters.")
        path = endpoint.path_with(*ids)
        at_most = float("inf") if within is None else within
        timeout = httpx.Timeout(min(timeout_seconds or self._timeout_seconds, at_most), connect=_CONNECT_SECONDS)
        patience = Patience(seconds=min(self._retry_seconds, at_most))
        while True:
            try:
                return self._attempt(endpoint, path, headers=headers, timeout=timeout, **content)
            except (Unreachable, Unavailable) as problem:
                may_pass = problem.status is None or problem.status in STATUSES
                if not (endpoint.repeatable and may_pass and patience.pause(problem.retry_after)):
                    raise

    def _attempt(self, endpoint: Endpoint[Any], path: str, *, stream: bool = False, **content: Any) -> httpx.Response:
        with self._named(endpoint):
            with _unlogged():
                answer = self._httpx.send(self._httpx.build_request(endpoint.method, path, **content), stream=stream)
            if answer.is_success:
                return answer
            answer.read()
        raise _problem(endpoint, answer)

    @contextmanager
    def _named(self, endpoint: Endpoint[Any]) -> Iterator[None]:
        """What goes wrong between here and there, as a `Problem`."""
        try:
            yield
        except UnicodeEncodeError:
            raise Malformed("input_invalid", f"Something sent to {endpoint.name} is not Unicode text.") from None
        except httpx.DecodingError as error:
            raise AnswerInvalid("answer_invalid", f"the answer to {endpoint.name} cannot be decoded") from error
        except httpx.TransportError as error:
            raise Unreachable("unreachable", f"no answer from {self._origin} ({type(error).__name__})") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemAnswer:
    """RFC 9457, as the gateway has it."""

    title: str
    detail: str
    code: str
    errors: tuple[FieldError, ...] | None = None


def _problem(endpoint: Endpoint[Any], answer: httpx.Response) -> Problem:
    retry_after = retry_after_in(answer.headers.get("Retry-After"))
    try:
        said = read(ProblemAnswer, answer.content, of=endpoint.name)
    except AnswerInvalid:  # a proxy's, or nobody's: it may quote anything
        said = ProblemAnswer(title="", code="http_error", detail=f"{answer.status_code} from {endpoint.name}")
    return errors.kind_of(answer.status_code, said.code)(
        said.code,
        said.detail,
        title=said.title,
        status=answer.status_code,
        errors=said.errors or (),
        retry_after=retry_after,
    )


def _origin(url: str) -> str:
    """Scheme, host and port: without a password, if there is one. Raises `Unreachable` if it is no URL."""
    try:
        parsed, _port = httpx.URL(url), urlsplit(url).port  # what either refuses is none
    except (httpx.InvalidURL, ValueError) as error:
        raise Unreachable("unreachable", "Expected a URL such as http://127.0.0.1:8000") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise Unreachable("unreachable", "Expected a URL such as http://127.0.0.1:8000")
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
