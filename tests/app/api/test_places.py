"""Places for calls in progress: refusals, reserved places, and calls that need no place."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.api import calls, places
from app.api.places import CALLS, FULL, LIMITS, Places
from tests.threads import apart


class Crowd:
    """Calls to an application that answers none of them until `end` is set."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.working = 0
        self.full: bool | None = None
        self.places = Places(self._app)
        self.tasks: list[asyncio.Task[tuple[int, str | None]]] = []

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.full = scope.get(FULL)
        if self.full is None:
            self.working += 1
            while (await receive()).get("more_body"):
                pass
            await self.end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    def call(
        self,
        path: str = "/v1/models",
        *,
        tenant: str | None = None,
        address: str = "10.0.0.1",
        method: str = "GET",
        size: int | None = 0,
        parts: list[Message] | None = None,
    ) -> asyncio.Task[tuple[int, str | None]]:
        """Start a call and return its task, whose result is the status and the code. If `size` is None, the call
        declares no length."""
        length = (b"transfer-encoding", b"chunked") if size is None else (b"content-length", str(size).encode())
        scope = {"type": "http", "method": method, "path": path, "headers": [length], "client": (address, 1)}
        if tenant is not None:
            scope[calls.CALLER] = SimpleNamespace(tenant_id=tenant)

        async def made() -> tuple[int, str | None]:
            sent: list[Message] = []
            left = list(parts or [])

            async def receive() -> Message:
                if parts is not None and not left:
                    await asyncio.Event().wait()
                return left.pop(0) if left else {"type": "http.request", "body": b"a" * (size or 0)}

            async def send(message: Message) -> None:
                sent.append(message)

            await self.places(scope, receive, send)
            body = b"".join(message.get("body", b"") for message in sent)
            return sent[0]["status"], json.loads(body).get("code")

        self.tasks.append(asyncio.create_task(made()))
        return self.tasks[-1]

    async def codes(self) -> Counter[Any]:
        """Count the calls answered so far, by code."""
        for _ in range(10):
            await asyncio.sleep(0)
        return Counter(task.result()[1] for task in self.tasks if task.done() and not task.cancelled())


def run(story: Callable[[Crowd], Awaitable[None]]) -> None:
    async def in_time() -> None:
        crowd = Crowd()
        await asyncio.wait_for(story(crowd), 60)
        crowd.end.set()
        for task in crowd.tasks:
            task.cancel()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)
        assert not crowd.places._taken

    apart(asyncio.run, in_time())


def test_a_tenant_cannot_take_all_places() -> None:
    """Even if a tenant uses all the places for concurrent calls that it is allowed, other tenants' calls are accepted.
    Readiness then reports that calls may be refused."""

    async def story(crowd: Crowd) -> None:
        for _ in range(CALLS + 30):
            crowd.call(tenant="ten_busy")
        assert await crowd.codes() == {"busy": 30}
        for _ in range(10):
            crowd.call(tenant="ten_quiet")
        assert await crowd.codes() == {"busy": 30}
        crowd.call("/readyz")
        assert await crowd.codes() == {"busy": 30, None: 1}
        assert crowd.full

    run(story)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/datasets"])
def test_deletion_requests_have_reserved_places(path: str) -> None:
    """Deletion requests are still stored while other calls occupy all places that are not reserved."""

    async def story(crowd: Crowd) -> None:
        for number in range(400):
            crowd.call(path, tenant=f"ten_{number % 4}", size=10**6 if path == "/v1/datasets" else 0, method="POST")
        kind = "large" if path == "/v1/datasets" else "known"
        assert await crowd.codes() == {"busy": 400 - LIMITS[kind][1]}
        working = crowd.working
        crowd.call("/v1/deletion-requests", method="POST", tenant="ten_0", size=40)
        await crowd.codes()
        assert crowd.working == working + 1

    run(story)


def test_callers_without_a_key_have_separate_places() -> None:
    """Calls without a key do not use the places for calls with a key, and a single address cannot occupy all places for
    calls without a key."""

    async def story(crowd: Crowd) -> None:
        for _ in range(100):
            crowd.call("/admin/login")
        of_one, in_all = LIMITS["unknown"]
        assert await crowd.codes() == {"busy": 100 - of_one}
        for number in range(100):
            crowd.call("/admin/login", address=f"10.0.1.{number}")
        assert await crowd.codes() == {"busy": 200 - in_all}
        crowd.call(tenant="ten_1")
        crowd.call("/readyz")
        await crowd.codes()
        assert (crowd.working, crowd.full) == (in_all + 1, False)

    run(story)


def test_a_small_body_is_read_before_a_place_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call occupies no place until its small body has arrived. If the body does not arrive before a timeout, the call
    is refused."""
    monkeypatch.setattr(places, "_READ_SECONDS", 0.5)
    half: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def story(crowd: Crowd) -> None:
        for number in range(500):
            crowd.call("/admin/login", method="POST", size=9, parts=half, tenant="ten_1" if number % 2 else None)
        crowd.call("/admin/login", method="POST", size=9)
        await crowd.codes()
        assert crowd.working == 1
        answers = await asyncio.gather(*crowd.tasks[:500])
        assert set(answers) == {(408, "request_timed_out")}

    run(story)


def test_the_application_gets_the_whole_body() -> None:
    """The application receives the whole body, and is notified when the caller disconnects."""

    async def story(crowd: Crowd) -> None:
        messages: list[Message] = [
            {"type": "http.request", "body": b"a", "more_body": True},
            {"type": "http.request", "body": b"b"},
            {"type": "http.disconnect"},
        ]
        left, received = list(messages), []

        async def receive() -> Message:
            return left.pop(0)

        again = await places._read(receive)
        for _ in messages:
            received.append(await again())
        assert received == messages

    run(story)


@pytest.mark.parametrize(("size", "code"), [(65_536, None), (65_537, "upload_too_large"), (None, "upload_too_large")])
def test_bodies_without_a_key_are_small(size: int | None, code: str | None) -> None:
    """A request without an API key must have a short body and declare its length. A request with a key can have a
    longer body. Routes of HTML pages are exempt, because they check bodies themselves."""

    async def story(crowd: Crowd) -> None:
        crowd.end.set()
        assert (await crowd.call(method="POST", size=size))[1] == code
        assert (await crowd.call(method="POST", size=size, tenant="ten_1"))[1] is None
        assert (await crowd.call("/admin/datasets", method="POST", size=size))[1] is None

    run(story)


def test_a_disconnected_caller_frees_its_place() -> None:
    """A call releases its place if the caller disconnects while it is being processed."""

    async def story(crowd: Crowd) -> None:
        gone = [crowd.call(tenant="ten_1") for _ in range(CALLS)]
        await crowd.codes()
        for task in gone:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*gone)
        crowd.call(tenant="ten_1")
        await crowd.codes()
        assert crowd.working == CALLS + 1

    run(story)
