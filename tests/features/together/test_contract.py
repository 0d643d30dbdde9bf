"""One contract: the gateway serves and both clients offer exactly what it declares."""

import inspect
import operator
from typing import Any

import pytest

from app.config import Settings
from app.main import create_app
from lethe import AsyncClient, Client
from lethe.client.methods import Resource, _Method
from lethe.contract import datasets
from lethe.contract.deletion_requests import DeletionRequestIn
from lethe.contract.operation import Operation
from lethe.contract.tenants import Policy
from lethe.errors import NotFound
from lethe.features.additions import contract as additions
from lethe.features.desk import contract
from lethe.features.lists.client import NewRequest
from lethe.features.networks import contract as networks
from lethe.proof import target
from tests.lethe.declared import OPERATIONS
from tests.lethe.scripted import Reply, Script

BY_HAND = {
    "create_batch_from_csv": lambda client: client.deletion_requests.create_from_csv(b"subject_id\r\np1\r\n"),
    "verify_certificate": lambda client: client.certificates.verify("a.b.c"),
}
"""Methods that do more than make a call, with the calls that they make."""


@pytest.fixture(scope="module")
def document() -> Any:
    """Return the OpenAPI document that a gateway serves at /openapi.json."""
    return create_app(Settings()).openapi()


def offered(client: Client | AsyncClient) -> dict[str, tuple[str, _Method[...]]]:
    """Return the SDK's path and method of each operation, keyed by the operation's name."""
    return {
        method.operation.name: (f"{name}.{attribute}", method)
        for name, resource in vars(client).items()
        if isinstance(resource, Resource)
        for attribute, method in inspect.getmembers_static(type(resource))
        if isinstance(method, _Method)
    }


def test_operations_have_unique_names() -> None:
    """No two operations have the same name, or the same method and path."""
    assert len({one.name for one in OPERATIONS}) == len(OPERATIONS)
    assert len({str(one) for one in OPERATIONS}) == len(OPERATIONS)


def test_only_declared_operations_are_served(document: Any) -> None:
    """Under /v1, the gateway serves exactly the declared operations."""
    served = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith("/v1/")
    }
    assert served == {str(one) for one in OPERATIONS if one.path.startswith("/v1/")}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_is_served_as_declared(document: Any, operation: Operation[..., Any]) -> None:
    """The served operation has the id, scope, status, problems, idempotency key, filters and body of its
    declaration."""
    found = document["paths"][operation.path][operation.method.lower()]
    assert found["operationId"] == operation.name
    asked = found.get("security", [])
    assert [scope for one in asked for scope in one["HTTPBearer"]] == ([operation.scope] if operation.scope else [])
    assert (
        {str(operation.status)}
        <= {status for status in found["responses"] if status[0] == "2"}
        <= {
            str(operation.status),
            "207",
        }
    )
    assert {str(one.status) for one in operation.problems} <= found["responses"].keys()
    parameters = {(one["in"], one["name"]) for one in found.get("parameters", ())}
    assert (("header", "idempotency-key") in parameters) == operation.keyed
    assert {name for where, name in parameters if where == "query"} == operation.query.model_fields.keys()
    assert {name for where, name in parameters if where == "path"} == set(operation.ids)
    if operation.takes is not None:
        schema = found["requestBody"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{operation.takes.__name__}"}


@pytest.mark.parametrize(
    ("operation", "method"),
    [
        (datasets.UPLOAD, "datasets.upload"),
        (additions.ADD, "datasets.add"),
        (networks.UPLOAD, "networks.upload"),
        (contract.ATTACH, "deletion_requests.attach"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_form_has_the_fields_of_its_method(document: Any, operation: Operation[..., Any], method: str) -> None:
    """An upload's form consists of the file and exactly the arguments of the client's method."""
    body = document["paths"][operation.path]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    fields = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]["properties"]
    signature = inspect.signature(operator.attrgetter(method)(Client("http://127.0.0.1:1", "k")))
    assert fields.keys() - {"file"} == signature.parameters.keys() - {"path", "idempotency_key", *operation.ids}


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_operation_is_a_method(client: Any) -> None:
    """Each operation is a method of one of the client's resources, generated from the declaration or written by
    hand."""
    found = offered(client("http://127.0.0.1:1", "k"))
    assert found.keys() | BY_HAND.keys() == {one.name for one in OPERATIONS}
    assert not found.keys() & BY_HAND.keys()
    assert all(method.operation in OPERATIONS for _, method in found.values())


def test_both_clients_have_the_same_methods() -> None:
    """Both clients have the same methods with the same arguments."""
    blocking, awaited = Client("http://127.0.0.1:1", "k"), AsyncClient("http://127.0.0.1:1", "k")
    assert {name: at for name, (at, _) in offered(blocking).items()} == {
        name: at for name, (at, _) in offered(awaited).items()
    }
    for name, resource in vars(blocking).items():
        if isinstance(resource, Resource):
            other = getattr(awaited, name)
            methods = {one for one in dir(resource) if not one.startswith("_")}
            assert methods == {one for one in dir(other) if not one.startswith("_")}
            for method in methods:
                here, there = (inspect.signature(getattr(one, method)) for one in (resource, other))
                assert here.parameters == there.parameters, f"{name}.{method}"


def test_a_batch_item_has_the_fields_of_a_request() -> None:
    """A request within a batch has the same fields as a single request."""
    assert NewRequest.__annotations__.keys() == DeletionRequestIn.model_fields.keys()


@pytest.mark.parametrize("name", BY_HAND)
def test_handwritten_methods_call_their_operation(script: Script, scripted_client: Client, name: str) -> None:
    """Each handwritten client method calls the operation that it represents."""
    script.says(Reply(status=404, body={}))
    with pytest.raises(NotFound):
        BY_HAND[name](scripted_client)
    [operation] = [one for one in OPERATIONS if one.name == name]
    assert [f"{one.method} {one.path}" for one in script.calls] == [str(operation)]


def test_contract_and_proof_have_the_same_maximum_target() -> None:
    """The contract, which cannot import the proofs, has the same maximum epsilon as the proofs."""
    assert Policy().max_epsilon == target.LARGEST_EPSILON
