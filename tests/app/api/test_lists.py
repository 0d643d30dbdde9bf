"""What all lists have in common: newest first, page by page, the same while rows are added."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
LISTS = ["/datasets", "/models", "/deletion-requests", "/api-keys"]


@pytest.fixture
def add(gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make) -> Callable[[str], str]:
    """Add one thing to a list; returns its id."""
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "/datasets": lambda: new_dataset(rows=4),
        "/models": lambda: new_model(new_dataset(rows=4)["id"]),
        "/deletion-requests": lambda: forget("stranger"),
        "/api-keys": lambda: gateway.post("/v1/api-keys", json={"name": "a", "scopes": ["admin"]}).json(),
    }
    return lambda path: str(makers[path]()["id"])


@pytest.mark.parametrize("path", LISTS)
def test_a_list_stays_the_same_while_rows_are_added(add: Callable[[str], str], get: Get, path: str) -> None:
    """Whoever goes through a list page by page sees all that was there at the start once, newest first."""
    before = {item["id"] for item in get(path)["items"]} | {add(path) for _ in range(4)}
    seen: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = get(f"{path}?limit=2{cursor and f'&cursor={cursor}'}")
        assert len(page["items"]) == 2 or page["next_cursor"] is None
        seen += page["items"]
        cursor = page["next_cursor"]
        add(path)
    assert {item["id"] for item in seen} == before
    assert len(seen) == len(before)
    times = [item["created_at"] for item in seen]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("path", [*LISTS, "/runs"])
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "cursor=x",
        "cursor=%00",
        "cursor=bnVsbA",  # null
        "cursor=WzEsMl0",  # [1,2]
        "cursor=WyIwMDAxLTAxLTAxVDAwOjAwOjAwKzIzOjU5IiwgIngiXQ",  # a time before the first year
        "cursor=WyIyMDI2LTAxLTAxVDAwOjAwOjAwKzAwOjAwIiwgIlx1ZDgwMCJd",  # a lone surrogate
    ],
)
def test_a_page_that_is_none_is_refused(
    gateway: TestClient, refused: Callable[..., dict[str, Any]], path: str, query: str
) -> None:
    """A limit out of range and a cursor that no page gave are a 422 that names the parameter."""
    problem = refused(gateway.get(f"/v1{path}?{query}"), 422, "input_invalid")
    assert [fault["path"] for fault in problem["errors"]] == [query.split("=")[0]]
