"""A small HTTP client of the gateway: what the command line is built on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx


class CallFailed(Exception):
    """The gateway refused, or could not be reached; `code` is the problem's code."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class Client:
    """Calls to one gateway with one API key. Raises `CallFailed` for everything that is not an answer."""

    def __init__(self, url: str, api_key: str) -> None:
        headers = {"Authorization": f"Bearer {api_key}"}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=httpx.Timeout(600.0, connect=5.0))
        except httpx.InvalidURL as error:
            raise CallFailed("unreachable", f"{url} is not a URL") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: str | int | None) -> Any:
        return self._call("GET", path, params={name: value for name, value in query.items() if value is not None})

    def post(self, path: str, body: dict[str, Any] | None = None, **query: str) -> Any:
        return self._call("POST", path, json=body, params=query)

    def upload(self, file: Path, *, name: str, schema: str | None) -> Any:
        """`POST /v1/datasets`."""
        with file.open("rb") as content:
            fields = {"name": name} | ({"schema": schema} if schema else {})
            return self._call("POST", "/v1/datasets", data=fields, files={"file": (file.name, content)})

    def download(self, path: str) -> bytes:
        return self._answer("GET", path).content

    def pages(self, path: str, **query: str | None) -> Iterator[Any]:
        """Every item of a list, page by page."""
        cursor = None
        while True:
            page = self.get(path, cursor=cursor, **query)
            yield from page["items"]
            if (cursor := page["next_cursor"]) is None:
                return

    def wait(self, path: str, *, until: Callable[[Any], bool], seen: Callable[[Any], None]) -> Any:
        """Look at `path` until `until` is true of it; `seen` is told what was found each time."""
        while True:
            found = self.get(path)
            seen(found)
            if until(found):
                return found
            time.sleep(0.05)

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        answer = self._answer(method, path, **arguments)
        try:
            return answer.json()
        except ValueError as error:
            raise CallFailed(
                "http_error", f"no JSON from {answer.url.path}: is {self._http.base_url} Lethe?"
            ) from error

    def _answer(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise CallFailed("unreachable", f"no answer from {self._http.base_url} ({type(error).__name__})") from error
        if answer.is_success:
            return answer
        try:
            problem = answer.json()
            faults = [f"{fault['path']}: {fault['message']}" for fault in problem.get("errors", [])]
            raise CallFailed(problem["code"], "; ".join([problem["detail"], *faults]))
        except (ValueError, KeyError, TypeError) as error:
            raise CallFailed("http_error", f"{answer.status_code} from {answer.url.path}") from error
