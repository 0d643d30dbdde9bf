"""The calculator over HTTP: forms from data, and plots along a parameter."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message

from app.config import Settings
from app.features.calculator import endpoints as bounds
from app.main import create_app
from lethe.features.analysis import work
from lethe.features.analysis.work import WorkBudgetExceeded
from lethe.features.theorems import CALCULATOR

Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]


def test_every_bound_describes_its_parameters(get: Get) -> None:
    """The API describes each parameter's meaning, unit and range, and states whether the parameter is a precondition
    that the caller must affirm."""
    page = get("/accounting/bounds")
    bounds = page["items"]
    assert page["next_cursor"] is None
    assert [bound["name"] for bound in bounds] == list(CALCULATOR)
    for bound in bounds:
        for parameter in bound["parameters"]:
            assert parameter["meaning"]
            if parameter["kind"] in {"real", "integer", "reals", "integers"}:
                assert parameter["interval"] is not None
            assert not parameter["is_hypothesis"] or parameter["kind"] == "boolean"
            if parameter["interval"]:
                low, high = map(float, parameter["interval"][1:-1].split(","))
                assert parameter["low"] == (None if math.isinf(low) else low)
                assert parameter["high"] == (None if math.isinf(high) else high)
    [unlearning] = [bound for bound in bounds if bound["name"] == "alg5_K"]
    units = {parameter["name"]: parameter["unit"] for parameter in unlearning["parameters"]}
    assert (units["eps_target"], units["n"], units["sigma"]) == ("nats", "rows", "")


def test_excessive_work_is_refused(gateway: TestClient, refused: Refused) -> None:
    """A small request that would need seconds of computation gets a 422 response that states the limit."""
    asked = {"eps_target": 1.0, "sigma": 0.03, "total": 200, "batch": 1, "Mlip": 1, "m": 0.0119, "L": 0.26}
    answer = gateway.post("/v1/accounting/bounds/alg6_K_list", json={"params": asked | {"n": 11982, "delta": 1e-5}})
    assert "at most 3000000 units of work" in refused(answer, 422, "work_exceeded")["detail"]


def test_an_evaluation_stops_on_disconnect(settings: Settings, admin_key: str) -> None:
    """An evaluation stops as soon as its caller disconnects."""
    stopped = threading.Event()
    service, body = create_app(settings), b'{"params": {"mu": 0.3, "delta": 1e-5}}'
    messages = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

    def evaluated(_params: object) -> dict[str, Any]:
        try:
            while True:
                work.spend(1)
                time.sleep(0.001)
        except WorkBudgetExceeded:
            stopped.set()
            raise

    async def receive() -> Message:
        return messages.pop(0) if messages else await asyncio.Event().wait() or {}

    async def send(_message: Message) -> None:
        pass

    headers = [(b"authorization", f"Bearer {admin_key}".encode()), (b"content-type", b"application/json")]
    headers += [(b"content-length", str(len(body)).encode())]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/accounting/bounds/gdp_eps"}
    scope |= {"raw_path": b"", "query_string": b"", "headers": headers, "http_version": "1.1"}
    scope |= {"scheme": "http", "server": ("lethe", 80), "client": ("::1", 1)}
    with TestClient(service) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "evaluate", lambda _name, params: evaluated(params))
        patch.setattr(bounds, "_SECONDS", 3600.0)
        assert client.portal
        client.portal.call(service, scope, receive, send)
    assert stopped.is_set()
