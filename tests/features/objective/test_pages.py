"""Pages of the dashboard about models by objective perturbation."""

from collections.abc import Callable
from typing import Any

from lethe.features.objective.methods import NAME
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]


def test_pages_name_the_method(
    officer: Browser,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> None:
    """The pages for a model and for its curve, plan, forecast and certificate name the method and its limits."""
    model = new_model(new_dataset()["id"], method=NAME)
    work()
    request = forget("p3")
    work()
    page = officer.get(f"/admin/models/{model['id']}")
    assert page.status_code == 200
    assert "Objective perturbation" in page.text
    for name in ("curve", "plan", "what-if"):
        assert officer.get(f"/admin/models/{model['id']}/{name}").status_code == 200, name
    assert "iterations of its solver" in officer.get(f"/admin/requests/{request['id']}").text


def test_pages_show_the_canary_tests(
    officer: Browser, new_dataset: Make, new_model: Make, work: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """The page of a run shows its canary test, and so does that of a test on request, whose certified epsilon is 0. The
    page of all canary tests plots both."""
    model = new_model(new_dataset()["id"], method=NAME)
    work()
    assert officer.post(f"/admin/models/{model['id']}/audit").status_code < 400
    work()
    requested, learned = get("/runs")["items"]
    assert (requested["audit"]["notion"], learned["audit"]["notion"]) == ("deletion", "release")
    for run in (requested, learned):
        page = officer.get(f"/admin/runs/{run['id']}")
        assert page.status_code == 200
        assert "worst-case records" in page.text
    page = officer.get(f"/admin/models/{model['id']}/canary-tests")
    assert (page.status_code, learned["id"] in page.text) == (200, True)
