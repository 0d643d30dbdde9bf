"""The SDK speaks of what the gateway serves: endpoints and fields, against the gateway's own OpenAPI document."""

import dataclasses
import importlib
import inspect
import pkgutil
import typing
from typing import Any

import pytest
from pydantic import TypeAdapter

import lethe
from app.config import Settings
from app.main import create_app
from lethe import Client, deletion_requests
from lethe.batches import NewRequest
from lethe.endpoints import Endpoint
from lethe.http import ProblemAnswer
from lethe.tenants import Policy, TimeLimit

SERVED_IN_FULL = {Policy, TimeLimit}
"""Their schemas are those of bodies too, where everything may be left out."""

MADE_BY: list[tuple[str, Endpoint[Any]]] = [
    (module.name, found)
    for module in pkgutil.iter_modules(lethe.__path__)
    for found in vars(importlib.import_module(f"lethe.{module.name}")).values()
    if isinstance(found, Endpoint)
]
ENDPOINTS = [endpoint for _, endpoint in MADE_BY]


@pytest.fixture(scope="module")
def document() -> Any:
    """What a gateway answers at /openapi.json."""
    return create_app(Settings()).openapi()


def operation(document: Any, endpoint: Endpoint[Any]) -> Any:
    return document["paths"][endpoint.path][endpoint.method.lower()]


def test_every_operation_is_offered(document: Any) -> None:
    """Whatever the gateway serves below /v1 is an endpoint of the SDK, and the SDK has no other below /v1."""
    served = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith("/v1/")
    }
    offered = {endpoint.name for endpoint in ENDPOINTS if endpoint.path.startswith("/v1/")}
    assert offered == served


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_calls_are_repeated_under_a_key_where_the_gateway_keeps_answers(document: Any, endpoint: Endpoint[Any]) -> None:
    """An `Idempotency-Key` is sent exactly where the gateway takes one, and only if the call needs one."""
    parameters = {parameter["name"].lower() for parameter in operation(document, endpoint).get("parameters", ())}
    assert endpoint.keyed == ("idempotency-key" in parameters)
    assert not (endpoint.keyed and endpoint.idempotent)


@pytest.mark.parametrize(
    "endpoint", [one for one in ENDPOINTS if one.answer is not bytes], ids=lambda endpoint: endpoint.name
)
def test_every_field_that_is_read_is_served_with_its_type(document: Any, endpoint: Endpoint[Any]) -> None:
    """Each field of each value is promised by the gateway's answers, with the same type, and never left out."""
    answers = operation(document, endpoint)["responses"]
    if endpoint.answer is type(None):
        assert {status for status in answers if status[0] == "2"} == {"204"}
        return
    served = [answer["content"]["application/json"]["schema"] for status, answer in answers.items() if status[0] == "2"]
    assert served
    for one in served:
        assert list(differences(endpoint.answer, one, document["components"]["schemas"], "")) == []


@pytest.mark.parametrize(
    ("kind", "answer", "at_fault"),
    [
        (int, {"type": "number"}, "it"),
        (str | None, {"type": "string"}, "it"),
        (tuple[str, ...], {"type": "array", "items": {"type": "integer"}}, "it.0"),
        (ProblemAnswer, {"type": "object", "properties": {}, "required": []}, "it.title"),
        (ProblemAnswer, {"type": "object", "properties": {"title": {"type": "string"}}, "required": []}, "it.title"),
    ],
)
def test_the_comparison_sees_differences(kind: Any, answer: Any, at_fault: str) -> None:
    """A field that is missing, may be missing, or has another type is found, and named."""
    assert at_fault in list(differences(kind, answer, {}, "it"))


def test_what_can_be_asked_is_what_the_gateway_takes(document: Any) -> None:
    """Grounds are the same closed sets; a request of a batch has the same fields; so has the call for one request."""
    schemas = document["components"]["schemas"]
    [ground, _null] = schemas["DeletionRequestIn"]["properties"]["ground"]["anyOf"]
    assert list(typing.get_args(deletion_requests.Ground)) == ground["enum"]
    assert list(typing.get_args(deletion_requests.RejectionGround)) == schemas["RejectionGround"]["enum"]
    fields = schemas["DeletionRequestIn"]["properties"].keys()
    assert NewRequest.__annotations__.keys() == fields
    create = inspect.signature(deletion_requests.DeletionRequests.create).parameters.keys()
    assert create - {"self", "strict", "idempotency_key"} == fields


def test_all_of_a_policy_is_read(document: Any) -> None:
    """Whatever a tenant's policy says can be read by the SDK."""
    served = document["components"]["schemas"]["Policy"]["properties"]
    assert {field.name for field in dataclasses.fields(Policy)} == served.keys()


def test_every_filter_is_offered(document: Any) -> None:
    """What a list can be asked for is a parameter of that name of some method of its resource."""
    with Client("http://127.0.0.1:1", "lethe_key") as client:
        for name, endpoint in MADE_BY:
            asked = {one["name"] for one in operation(document, endpoint).get("parameters", ()) if one["in"] == "query"}
            methods = vars(type(getattr(client, name))).values()
            offered = {
                one for method in methods if inspect.isfunction(method) for one in inspect.signature(method).parameters
            }
            assert asked - {"limit", "cursor"} <= offered, endpoint.name


def differences(kind: Any, served: Any, schemas: Any, path: str) -> typing.Iterator[str]:
    """Where a value of `kind` could not be read from what the schema `served` describes."""
    served = resolved(served, schemas)
    if dataclasses.is_dataclass(typing.get_origin(kind) or kind):
        yield from differences_of_fields(kind, served, schemas, path)
    elif typing.get_origin(kind) is tuple:
        [item, _] = typing.get_args(kind)
        if served.get("type") != "array":
            yield path
        else:
            yield from differences(item, served["items"], schemas, f"{path}.0")
    elif (options := typing.get_args(kind)) and type(None) in options:
        [option] = [option for option in options if option is not type(None)]
        given = [resolved(one, schemas) for one in served.get("anyOf", ())]
        if len(given) != 2 or {"type": "null"} not in given:
            yield path
        else:
            yield from differences(option, next(one for one in given if one != {"type": "null"}), schemas, path)
    elif typing.get_origin(kind) is dict and dataclasses.is_dataclass(value := typing.get_args(kind)[1]):
        [item] = served["patternProperties"].values()
        yield from differences(value, item, schemas, f"{path}.*")
    elif bare(TypeAdapter(kind).json_schema()) != bare(served):
        yield path


def differences_of_fields(kind: Any, served: Any, schemas: Any, path: str) -> typing.Iterator[str]:
    origin = typing.get_origin(kind) or kind
    arguments = dict(zip(vars(origin).get("__parameters__", ()), typing.get_args(kind), strict=True))
    hints = typing.get_type_hints(origin)
    for field in dataclasses.fields(origin):
        below = f"{path}.{field.name}"
        always = field.default is dataclasses.MISSING and origin not in SERVED_IN_FULL
        if field.name not in served["properties"] or (always and field.name not in served["required"]):
            yield below
        else:
            wanted = hints[field.name]
            if arguments and (free := getattr(wanted, "__parameters__", None)):
                wanted = wanted[tuple(arguments[parameter] for parameter in free)]
            yield from differences(wanted, served["properties"][field.name], schemas, below)


def resolved(schema: Any, schemas: Any) -> Any:
    return schemas[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def bare(schema: Any) -> Any:
    """A schema without what is for people, and without what only bodies are held to: texts of the SDK are open."""
    said = {"title", "description", "default", "enum", "pattern", "minLength", "maxLength"}
    said |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    return {name: value for name, value in schema.items() if name not in said and (name, value) != ("items", {})}
