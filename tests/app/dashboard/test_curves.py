"""The curve as a plot and as a table: what is drawn is what the API says."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.app.dashboard.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


@pytest.fixture
def forgotten(new_dataset: Make, new_model: Make, forget: Make, work: Work) -> dict[str, Any]:
    """A model that has learned and forgotten one person."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    forget("p3")
    work()
    return model


def plots(page: str) -> list[dict[str, Any]]:
    return [json.loads(html.unescape(found)) for found in re.findall(r'data-plot="([^"]+)"', page)]


def test_what_is_drawn(officer: Browser, forgotten: dict[str, Any], get: Get) -> None:
    """Each run is as wide as another; marks are where a person was forgotten and where versions came out; the level is
    the target; the numbers are those of the API, and what a logarithmic scale cannot show is a gap."""
    page = officer.get(f"/admin/models/{forgotten['id']}/curve").text
    epsilons, influences = plots(page)
    assert epsilons["level"]["y"] == forgotten["target"]["epsilon"]
    assert epsilons["marks"] == influences["marks"]
    assert [(mark["kind"], mark["x"], mark["text"]) for mark in epsilons["marks"]] == [
        ("release", 1.0, "v1"),
        ("batch", 1.0, "−1"),
        ("release", 2.0, "v2"),
    ]
    rows = epsilons["rows"]
    places = [row[0] for row in rows]
    assert (places[0], places[-1]) == (0.0, 2.0)
    assert places == sorted(places)
    assert len(rows) == len(epsilons["names"]) == page.count('<tr><th scope="row" class="number">') - 2
    assert rows[0][1:] == [None, None, None, rows[0][4], None]
    forgetting, learning = get(f"/accounting/models/{forgotten['id']}/trajectory?points=60&limit=12")["items"]
    said = [point["epsilon"]["unlearning"] or None for point in learning["points"] + forgetting["points"]]
    assert [row[1] for row in rows] == said


def test_every_step_as_wide(officer: Browser, forgotten: dict[str, Any]) -> None:
    """The other axis counts the steps of the model's whole life."""
    [epsilons, _] = plots(officer.get(f"/admin/models/{forgotten['id']}/curve?axis=steps").text)
    learned = forgotten["mechanism"]["learn_steps"]
    assert epsilons["ticks"] is None
    assert [mark["x"] for mark in epsilons["marks"]][:2] == [learned, learned]
    assert epsilons["rows"][-1][0] > learned


def test_nothing_new(officer: Browser, forgotten: dict[str, Any]) -> None:
    """A page that has drawn the live version already is told that there is no more; one that has not gets it."""
    path = f"/admin/models/{forgotten['id']}/curve"
    assert officer.get(f"{path}?known=2").status_code == 204
    assert officer.get(f"{path}?known=1").status_code == 200


def test_an_axis_that_is_none(officer: Browser, forgotten: dict[str, Any]) -> None:
    """An address that nobody links to is a designed 422."""
    assert officer.get(f"/admin/models/{forgotten['id']}/curve?axis=x").status_code == 422
    assert officer.get(f"/admin/models/{forgotten['id']}/curve?cursor=x").status_code == 422
