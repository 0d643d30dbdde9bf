"""Query parameters: a call accepts only the parameters that it defines, and each only once."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lethe.contract.sets import Scope
from tests.app.api.documents import document
from tests.app.api.routes import NEEDS
from tests.tables import each

Refused = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def queries(route: str) -> dict[str, Any]:
    """Return the schemas of the query parameters documented for a route."""
    method, path = route.split()
    parameters = document()["paths"][path][method.lower()].get("parameters", ())
    return {one["name"]: one["schema"] for one in parameters if one["in"] == "query"}


@each("route", [route for route in NEEDS if " /v1/" in route])
def test_an_unknown_parameter_is_refused(gateway: TestClient, refused: Refused, route: str) -> None:
    """A call with an unknown parameter is refused; the error names the parameter and lists the known ones."""
    method, path = route.split()
    problem = refused(gateway.request(method, f"{path}?limitt=secret&cursor=x"), 422, "input_invalid")
    faults = {fault["path"]: fault["message"] for fault in problem["errors"]}
    known = queries(route)
    # A call reports its missing required parameters as well.
    asked = {name for name, message in faults.items() if message == "Field required"}
    assert asked <= known.keys()
    assert faults.keys() - asked == ({"limitt"} if "cursor" in known else {"limitt", "cursor"})
    assert [name for name in known if name not in faults["limitt"]] == []
    assert "secret" not in str(problem)


@each("route", lambda: [route for route in NEEDS if queries(route)])
def test_a_repeated_parameter_is_refused(gateway: TestClient, refused: Refused, route: str) -> None:
    """A call that repeats a parameter is refused, because all but one of the values would otherwise be silently
    ignored."""
    assert all(schema.get("type") != "array" for schema in queries(route).values())
    method, path = route.split()
    name = next(iter(queries(route)))
    problem = refused(gateway.request(method, f"{path}?{name}=1&{name}=2"), 422, "input_invalid")
    assert problem["errors"] == [{"path": name, "message": "expected it once"}]


def test_a_misspelled_filter_is_refused(gateway: TestClient, refused: Refused) -> None:
    """Lists and exports refuse a misspelled filter instead of returning unfiltered results."""
    for path in ("/v1/deletion-requests", "/v1/deletion-requests.csv"):
        problem = refused(gateway.get(path, params={"statsu": "completed"}), 422, "input_invalid")
        [fault] = problem["errors"]
        assert fault["path"] == "statsu"
        assert {"status", "external_id"} <= set(fault["message"].replace(",", "").split())


def test_the_list_of_unknown_parameters_is_bounded(gateway: TestClient, refused: Refused) -> None:
    """If a call has two thousand unknown parameters, the error lists only ten of them."""
    query = "&".join(f"q{number}=1" for number in range(2000))
    assert len(refused(gateway.get(f"/v1/models?{query}"), 422, "input_invalid")["errors"]) == 10


def test_callers_are_authenticated_before_parameters_are_checked(
    gateway: TestClient, refused: Refused, key_with: Callable[..., dict[str, str]]
) -> None:
    """The error for a caller without a key or scope does not reveal which parameters exist."""
    path = "/v1/audit-log?who=me"
    refused(gateway.get(path, headers={"Authorization": "Bearer none"}), 401, "unauthenticated")
    refused(gateway.get(path, headers=key_with(Scope.REQUESTS_READ)), 403, "scope_missing")


def test_other_paths_accept_any_parameters(gateway: TestClient) -> None:
    """Calls to paths outside /v1 accept unknown parameters."""
    for path in ("/healthz", "/metrics", "/.well-known/jwks.json", "/opendsr/v2/discovery", "/docs", "/admin/login"):
        plain, asked = gateway.get(path), gateway.get(f"{path}?utm=1")
        assert asked.status_code == plain.status_code == 200, path


@pytest.mark.slow
def test_the_document_mentions_query_parameters() -> None:
    """The /docs page describes how query parameters are handled."""
    assert "query parameter" in document()["info"]["description"]


def test_short_lists_have_pages_too(gateway: TestClient, get: Get, refused: Refused) -> None:
    """If a limit is given, the lists of theorems and events are paginated like all other lists."""
    request = gateway.post("/v1/deletion-requests", json={"subject_id": "nobody"}).json()
    for path in ("/accounting/bounds", f"/deletion-requests/{request['id']}/events"):
        whole, found, cursor = get(path), [], ""
        assert whole["next_cursor"] is None
        while cursor is not None:
            page = get(f"{path}?limit=1{cursor and f'&cursor={cursor}'}")
            assert len(page["items"]) == 1
            found, cursor = found + page["items"], page["next_cursor"]
        assert found == whole["items"]
        assert len(found) > 1
        refused(gateway.get(f"/v1{path}?cursor=x"), 422, "input_invalid")
        refused(gateway.get(f"/v1{path}?limit=501"), 422, "input_invalid")
