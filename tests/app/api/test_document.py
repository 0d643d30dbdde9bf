"""The OpenAPI document, tested for what a new reader needs."""

import importlib
import json
import pkgutil
import re

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel

import lethe.contract
from app import accounting_main
from app.api.document import TAGS
from app.config import Settings
from lethe.contract.fields import Body
from tests.app.api.documents import document, operations
from tests.app.api.routes import NEEDS, OPEN_TO_ALL
from tests.tables import each


def test_schemas_have_unique_names() -> None:
    """No two schemas in the OpenAPI document share a name; otherwise, FastAPI would prefix the names with module
    paths."""
    assert [name for name in document()["components"]["schemas"] if "__" in name] == []


def test_the_document_is_encoded_once(gateway: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway encodes the OpenAPI document, which is about a megabyte in size, only once for all callers without a
    key. Callers that already have the document get a 304 response."""
    first = gateway.get("/openapi.json")
    monkeypatch.setattr(json, "dumps", None)
    assert gateway.get("/openapi.json").content == first.content
    again = gateway.get("/openapi.json", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert gateway.head("/openapi.json").headers["content-length"] == str(len(first.content))


@pytest.mark.slow
@each("route", operations)
def test_operations_have_a_title_a_description_and_a_tag(route: str) -> None:
    """Every operation has a title, exactly one of the tags that group operations on the page, and a description that
    states more than the required scope."""
    operation = operations()[route]
    assert operation["summary"]
    assert len(operation["description"].split("\n\n")) > 1
    assert len(operation["tags"]) == 1
    assert operation["tags"][0] in TAGS


@each("route", operations)
def test_ids_and_idempotency_keys_are_described(route: str) -> None:
    """Path ids and the Idempotency-Key header are described in full sentences."""
    for parameter in operations()[route].get("parameters", ()):
        if parameter["name"].endswith(("_id", "idempotency-key")) and parameter["in"] != "query":
            assert parameter["description"].endswith(".")


@each("route", operations)
def test_every_operation_states_its_scope(route: str) -> None:
    """Every operation states its required scope in both its security section and its description."""
    operation = operations()[route]
    if route in OPEN_TO_ALL:
        assert "security" not in operation
        assert operation["description"].endswith("Open to all.")
    else:
        assert operation["security"] == [{"HTTPBearer": [NEEDS[route].value]}]
        assert operation["description"].endswith(f"Needs the scope `{NEEDS[route].value}`.")


def test_operation_names_are_unique_identifiers() -> None:
    """No two operations share a name, and each name is an identifier that a generated client can use."""
    names = [operation["operationId"] for operation in operations().values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in names)


def test_tags_are_in_order() -> None:
    """The OpenAPI document describes exactly the tags in use, in the order in which the page shows them."""
    used = {operation["tags"][0] for operation in operations().values()}
    assert [tag["name"] for tag in document()["tags"]] == [name for name in TAGS if name in used]
    alone = accounting_main.create_app(Settings()).openapi()
    assert [tag["name"] for tag in alone["tags"]] == [
        name for name in ("Certificates", "Accounting", "Operations") if name in used
    ]


def test_operations_that_create_have_links() -> None:
    """Operations that create an object link to the operations on that object, and pages link to the next page."""
    made = operations()["POST /v1/deletion-requests"]["responses"]["202"]["links"]
    for name in ("get_deletion_request", "approve_deletion_request", "extend_deletion_request", "get_certificates"):
        assert made[name] == {"operationId": name, "parameters": {"request_id": "$response.body#/id"}}
    learned = operations()["POST /v1/datasets"]["responses"]["201"]["links"]["create_model"]
    assert learned == {"operationId": "create_model", "requestBody": {"dataset_id": "$response.body#/id"}}
    names = {operation["operationId"] for operation in operations().values()}
    for route, operation in operations().items():
        links = [link for answer in operation["responses"].values() for link in answer.get("links", {})]
        assert set(links) <= names
        if any(parameter["name"] == "cursor" for parameter in operation.get("parameters", ())):
            assert operation["operationId"] in links, route


def test_operations_that_create_announce_a_location() -> None:
    """Operations that create or start exactly one object document the `Location` header; other operations do not."""
    located = {
        route
        for route, operation in operations().items()
        for answer in operation["responses"].values()
        if "Location" in answer.get("headers", {})
    }
    starts = {route for route, operation in operations().items() if operation["responses"].keys() & {"201", "202"}}
    many = {"POST /v1/deletion-requests:batch", "POST /v1/deletion-requests.csv"}
    assert starts - located == many & starts
    assert located <= starts


def described() -> list[type[BaseModel]]:
    return [
        one
        for module in pkgutil.iter_modules(lethe.contract.__path__)
        for one in vars(importlib.import_module(f"lethe.contract.{module.name}")).values()
        if isinstance(one, type) and issubclass(one, Body) and one.__module__.endswith(module.name)
    ]


@pytest.mark.parametrize("body", [one for one in described() if "json_schema_extra" in one.model_config])
def test_examples_are_valid(body: type[Body]) -> None:
    """Every example body in the OpenAPI document is valid."""
    extra = body.model_config["json_schema_extra"]
    assert isinstance(extra, dict)
    examples = extra["examples"]
    assert isinstance(examples, list)
    assert examples
    for example in examples:
        body.model_validate(example)
