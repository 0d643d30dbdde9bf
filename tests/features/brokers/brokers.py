"""The brokers that a test runs on, and what a caller sees of the work behind them."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.faults import processes

Get = Callable[[str], Any]


def on_rabbitmq_too(*marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    brokers = [processes.Redis, pytest.param(processes.RabbitMQ, marks=[pytest.mark.rabbitmq, *marks])]
    return pytest.mark.parametrize("broker", brokers, indirect=True)


BOTH_BROKERS, BOTH_AT_LENGTH = on_rabbitmq_too(), on_rabbitmq_too(pytest.mark.soak)


def is_completed(get: Get, request: dict[str, Any]) -> bool:
    return bool(get(f"/deletion-requests/{request['id']}")["status"] == "completed")


def runs_of(get: Get) -> list[tuple[str, str]]:
    return [(run["kind"], run["status"]) for run in get("/runs")["items"]]
