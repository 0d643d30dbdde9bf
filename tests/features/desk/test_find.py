"""The search box: its text leads to a page and never appears in an address."""

import re
from collections.abc import Callable
from typing import Any

from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def test_a_unique_match_is_opened(
    officer: Browser, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """Searching for an id, a complete case number, or part of a name that only one object has opens the page of that
    object."""
    dataset = new_dataset(name="Customers 2026")["id"]
    model = new_model(dataset, name="Churn_model")["id"]
    work()
    request = forget("p1", external_id="case 7/b")["id"]
    work()
    [certificate] = [one["certificate_id"] for one in get(f"/deletion-requests/{request}")["models"]]
    run, key = get("/runs")["items"][0]["id"], get("/api-keys")["items"][0]["id"]
    for sought, path in {
        request: f"requests/{request}",
        model: f"models/{model}",
        dataset: f"datasets/{dataset}",
        run: f"runs/{run}",
        key: f"keys/{key}",
        certificate: f"requests/{request}#{certificate}",
        " case 7/b ": f"requests/{request}",
        "churn_": f"models/{model}",
        "CUSTOMERS": f"datasets/{dataset}",
    }.items():
        answer = officer.post("/admin/find", anything=sought)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/admin/{path}"), sought
        assert officer.get(answer.headers["location"]).status_code == 200


def test_several_matches_are_listed(officer: Browser, new_dataset: Make, new_model: Make, forget: Make) -> None:
    """Several matches are listed to choose from. A part of a case number matches nothing, and a wildcard is treated as
    a plain character."""
    dataset = new_dataset(rows=4, name="churn data")["id"]
    made = [new_model(dataset, name=f"churn {n}")["id"] for n in range(2)]
    forget("p1", external_id="case-1")
    page = officer.post("/admin/find", anything="Churn").text
    assert [one for one in (dataset, *made) if f'/{one}"' not in page] == []
    for nothing in ("case", "%", "dr_", "mdl_0123456789abcdef0123"):
        answer = officer.post("/admin/find", anything=nothing)
        page = answer.text if answer.status_code == 200 else officer.get(answer.headers["location"]).text
        assert re.search("No results|Not found", page), nothing
    assert officer.post("/admin/find", anything=" ").status_code == 422


def test_search_respects_scopes(
    officer: Browser, somebody_with: Callable[..., Browser], new_dataset: Make, forget: Make
) -> None:
    """A search finds only objects that the key's scopes permit."""
    new_dataset(rows=4, name="customers")
    forget("stranger", external_id="case-1")
    operator = somebody_with(Scope.METRICS_READ)
    for sought in ("case-1", "customers"):
        assert officer.post("/admin/find", anything=sought).status_code == 303
        assert "No results" in operator.post("/admin/find", anything=sought).text
