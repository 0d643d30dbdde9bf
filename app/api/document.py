"""The OpenAPI document, made whole: what FastAPI cannot know about the operations of this API, told by rules."""

import functools
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from app.api import problems
from lethe.contract.problems import Busy, Unavailable, UploadTooLarge

TAGS = {
    "Deletion requests": "Ask for people to be forgotten, decide about it, and watch it happen.",
    "Saved views": "Views of the list of requests that their callers keep, each for themselves.",
    "Certificates": "What was signed about a forgetting, and whether it holds.",
    "Datasets": "The rows of people.",
    "Models": "What was learned from them, its versions, and what it says.",
    "Networks": "Public networks, whose features rows are, or whose weights models move.",
    "Runs": "What the workers did and are doing.",
    "Lineage": "Which models, versions and copies a person's rows fed.",
    "Suppressions": "Who asked to be forgotten, and is not taken in again.",
    "Leaving reasons": "Why people leave, by answers that they randomised themselves.",
    "Accounting": "How much of anybody is left in a model, and every theorem behind it.",
    "Webhooks": "What receivers were told.",
    "Identity issuers": "Whose statements about people's identity are believed.",
    "Data Rights Protocol": "The authorised agents that may sign requests.",
    "API keys": "Who gets in, and how far.",
    "People": "Who logs in to the dashboard, in which role.",
    "Tenants": "The organisations of an installation.",
    "Audit log": "Who did what.",
    "Operations": "Alive, ready, the public keys, metrics: open to all.",
}
"""In the order in which the page `/docs` shows them."""
_LEADS = {
    "get_deletion_request": {
        "get_run": {"run_id": "$response.body#/models/0/run_id"},
        "get_certificate": {"certificate_id": "$response.body#/models/0/certificate_id"},
    },
    "get_model": {
        name: {"model_id": "$request.path.model_id", "number": "$response.body#/live_version"}
        for name in ("get_version", "get_weights")
    },
    "add_request_attachment": {
        name: {"request_id": "$request.path.request_id", "attachment_id": "$response.body#/id"}
        for name in ("get_request_attachment", "delete_request_attachment")
    },
    "add_records": {"get_addition": {"dataset_id": "$request.path.dataset_id", "addition_id": "$response.body#/id"}},
    "list_bounds": {"evaluate_bound": {"name": "$response.body#/items/0/name"}},
}
"""The links of an answer besides those that the rule in `_link` finds."""

_QUERIES = "A query parameter that a call below `/v1` does not know, or one that comes twice, is refused by name (422)."
_LOCATION = {
    "description": "Where it is. Agents and identity issuers have no page there: lists show them, and "
    "`DELETE` takes that path.",
    "required": True,
    "schema": {"type": "string", "pattern": "^/v1/"},
}

Operation = dict[str, Any]


def operation_id(route: APIRoute) -> str:
    """The name of the endpoint: there are no two of the same name."""
    return route.name


def install(app: FastAPI) -> None:
    generate = app.openapi

    @functools.cache
    def described() -> dict[str, Any]:
        document = generate()
        document["info"]["description"] += f"\n\n{_QUERIES}"
        operations = {operation["operationId"]: operation for _, _, operation in _operations(document)}
        for operation in operations.values():
            _describe(operation)
            _locate(document, operation)
        _close_forms(document)
        _link(document, operations)
        used = {tag for operation in operations.values() for tag in operation["tags"]}
        document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items() if name in used]
        return document

    app.openapi = described  # type: ignore[method-assign]


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, Operation]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _describe(operation: Operation) -> None:
    """Describe the scope that an operation needs, by the dependency that asks for it; and the answers from before the
    endpoint."""
    scopes = [scope for scheme in operation.get("security", ()) for scope in scheme["HTTPBearer"]]
    needs = f"Needs the scope `{scopes[0]}`." if scopes else "Open to all."
    operation["description"] = "\n\n".join(filter(None, [operation.get("description", "").strip(), needs]))
    conditions = [*([Unavailable, Busy] if scopes else []), *([UploadTooLarge] if "requestBody" in operation else [])]
    for status, answer in problems.declared(*conditions).items():
        operation["responses"].setdefault(str(status), answer)


def _close_forms(document: dict[str, Any]) -> None:
    """A form has the fields that are listed and no others, which is said of bodies in JSON by themselves."""
    for _, _, operation in _operations(document):
        form = operation.get("requestBody", {}).get("content", {}).get("multipart/form-data")
        if form:
            name = form["schema"]["$ref"].rpartition("/")[2]
            document["components"]["schemas"][name]["additionalProperties"] = False


def _locate(document: dict[str, Any], operation: Operation) -> None:
    """Add the header `Location` to an answer that makes one thing, or sets it going, and has its id."""
    for status in {"201", "202"} & operation["responses"].keys():
        answer = operation["responses"][status]
        name = answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        if "id" in document["components"]["schemas"][name]["properties"]:
            answer["headers"] = {"Location": _LOCATION}


def _link(document: dict[str, Any], operations: dict[str, Operation]) -> None:
    """An answer that makes or lists something leads to whatever takes its id, and a page leads to the next."""
    paths = document["paths"]
    for path, method, operation in _operations(document):
        collection, _, rest = path.partition("/{")
        parameter, _, verb = rest.partition("}")
        inside = f"{collection}/{{{parameter}}}" if rest else next((one for one in paths if _is_item(one, path)), "")
        parameter = inside.removeprefix(collection).strip("/{}")
        if collection in paths and parameter.endswith("id"):
            makes_one = verb and "201" in operation["responses"] and "get" not in paths[path]  # else: one of its parts
            makes = method == "post" and (not rest or makes_one)
            if makes or (method == "get" and not rest):
                where = "$response.body#/id" if makes else "$response.body#/items/0/id"
                for name, link in _takers(document, parameter, where):
                    _lead(operation, name, link)
        if any(one["name"] == "cursor" for one in operation.get("parameters", ())):
            given = {one["name"]: f"$request.path.{one['name']}" for one in operation["parameters"] if _in_path(one)}
            next_page = {"parameters": given | {"cursor": "$response.body#/next_cursor"}}
            _lead(operation, operation["operationId"], next_page)
    for name, leads in _LEADS.items():
        for target, parameters in leads.items():
            if name in operations and target in operations:
                _lead(operations[name], target, {"parameters": parameters})


def _takers(document: dict[str, Any], parameter: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The operations that need `parameter` alone, in their path or their body."""
    for _, _, operation in _operations(document):
        in_path = [one["name"] for one in operation.get("parameters", ()) if _in_path(one)]
        if in_path == [parameter]:
            yield operation["operationId"], {"parameters": {parameter: where}}
        elif not in_path and parameter in _required(document, operation):
            yield operation["operationId"], {"requestBody": {parameter: where}}


def _required(document: dict[str, Any], operation: Operation) -> list[str]:
    """The fields that the JSON of a body must name."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    required: list[str] = document["components"]["schemas"].get(name, {}).get("required", [])
    return required


def _lead(operation: Operation, target: str, link: dict[str, Any]) -> None:
    good = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
    good.setdefault("links", {})[target] = {"operationId": target} | link


def _is_item(path: str, collection: str) -> bool:
    inside = path.removeprefix(collection)
    return path.startswith(f"{collection}/{{") and inside.endswith("}") and inside.count("/") == 1


def _in_path(parameter: dict[str, Any]) -> bool:
    return bool(parameter["in"] == "path")
