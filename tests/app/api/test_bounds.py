"""The calculator over HTTP: forms from data, and plots along a parameter."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.privacy.bounds import CALCULATOR, evaluate

Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]


def test_a_form_can_be_made_of_every_bound(get: Get) -> None:
    """Each parameter says what it means, its unit and its range as data, and which are preconditions to be affirmed."""
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


def test_a_sweep_is_the_theorem_point_by_point(gateway: TestClient) -> None:
    """Each point has what the theorem says there, or the reason why it says nothing."""
    asked = {"params": {"delta": 1e-5}, "over": "mu", "low": -1.0, "high": 3.0, "points": 9}
    answer = gateway.post("/v1/accounting/bounds/gdp_eps/sweep", json=asked)
    assert answer.status_code == 200, answer.text
    points = answer.json()["points"]
    assert [point["value"] for point in points] == [-1.0 + half / 2 for half in range(9)]
    for point in points:
        if point["value"] < 0:
            assert (point["outputs"], point["refused"]["name"]) == (None, "domain")
        else:
            assert point["refused"] is None
            assert point["outputs"] == evaluate("gdp_eps", {"mu": point["value"], "delta": 1e-5})


@pytest.mark.parametrize(
    "wrong",
    [
        {"over": "nothing"},
        {"low": 2.0},
        {"points": 1},
        {"points": 201},
        {"scale": "log", "low": 0.0},
        {"scale": "steep"},
        {"over": "x" * 201},
    ],
)
def test_a_malformed_sweep_is_refused(gateway: TestClient, wrong: dict[str, Any], refused: Refused) -> None:
    """A grid that is none, or along something that is no number of the theorem, is a 422."""
    asked: dict[str, Any] = {"params": {"delta": 1e-5}, "over": "mu", "low": 0.1, "high": 1.0} | wrong
    refused(gateway.post("/v1/accounting/bounds/gdp_eps/sweep", json=asked), 422, "input_invalid")


def test_a_sweep_of_nothing(gateway: TestClient, refused: Refused) -> None:
    """An unknown theorem is a 404."""
    asked = {"params": {}, "over": "mu", "low": 0.1, "high": 1.0}
    refused(gateway.post("/v1/accounting/bounds/folklore/sweep", json=asked), 404, "bound_unknown")
