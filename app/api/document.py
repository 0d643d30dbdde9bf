"""The OpenAPI document and its page. Rules add what FastAPI cannot know about each operation."""

import base64
import functools
import hashlib
import importlib.resources
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.responses import HTMLResponse

from app.api import problems
from lethe.contract.problems import Busy, ContentEncodingUnsupported, Unavailable, UploadTooLarge

TAGS = {
    "Deletion requests": "Requests to forget people: submission, decisions and progress.",
    "Certificates": "Signed certificates about forgotten people, and their verification.",
    "Datasets": "Datasets of people's encoded rows, from which models learn.",
    "Models": "Models, their versions and their predictions.",
    "Networks": "Public networks that compute the features of rows, or whose weights a model moves.",
    "Runs": "Past and current runs of the workers, and the queue of due datasets.",
    "Identities": "Which identifiers belong to one person, so that a request by any of them reaches all rows.",
    "Systems": "Systems outside of Lethe that learned from people, their tasks, and the bundle of a request.",
    "Trainers": "Models that are trained again from scratch, in isolation, without a person.",
    "Attested trainers": "Trainers outside of Lethe, their signed manifests, and what may be served.",
    "Lineage": "Models, versions and copies that a person's rows fed.",
    "Suppressions": "People who asked to be forgotten, and whose rows are refused.",
    "Leaving reasons": "Reasons for leaving, estimated from answers that people randomised themselves.",
    "Accounting": "Influence that records still have on models, the ledgers, and the theorems behind the bounds.",
    "Webhooks": "Deliveries to the receivers of webhooks, and the secret that signs them.",
    "Identity issuers": "Issuers whose statements about the identity of people are trusted.",
    "Data Rights Protocol": "Authorised agents that may sign requests.",
    "API keys": "API keys, with their scopes and limits.",
    "People": "People who log in to the dashboard, and their roles.",
    "Tenants": "Organisations that share an installation, and their policies.",
    "Audit log": "Hash-chained log of actions and their actors, with signed checkpoints.",
    "Operations": "Liveness, readiness, public keys and metrics.",
}
"""Descriptions of tags, in the order in which the `/docs` page shows them."""
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
"""Links in responses, in addition to those that `_link` derives."""

_QUERIES = "Calls below `/v1` refuse unknown and repeated query parameters (422), and name them."
_LOCATION = {
    "description": "Path of the new object. Agents and identity issuers cannot be read there: lists show them, and "
    "`DELETE` takes this path.",
    "required": True,
    "schema": {"type": "string", "pattern": "^/v1/"},
}

Operation = dict[str, Any]


def operation_id(route: APIRoute) -> str:
    """Return the route's operation id: the unique name of its endpoint."""
    return route.name


def new_app(*, title: str, description: str, lifespan: Callable[[FastAPI], Any]) -> FastAPI:
    """Return an application that reports errors as problems and serves its OpenAPI document and a reference page."""
    app = FastAPI(
        title=title,
        version="0.1.0",
        description=description,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    problems.install(app)
    generate = app.openapi

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
    _serve_document(app)
    _serve_page(app)
    return app


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, Operation]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _describe(operation: Operation) -> None:
    """Document an operation's required scope and the errors that can occur before its endpoint runs."""
    scopes = [scope for scheme in operation.get("security", ()) for scope in scheme["HTTPBearer"]]
    needs = f"Needs the scope `{scopes[0]}`." if scopes else "Open to all."
    operation["description"] = "\n\n".join(filter(None, [operation.get("description", "").strip(), needs]))
    of_body = [UploadTooLarge, ContentEncodingUnsupported] if "requestBody" in operation else []
    conditions = [*([Unavailable, Busy] if scopes else []), *of_body]
    for status, answer in problems.declared(*conditions).items():
        operation["responses"].setdefault(str(status), answer)


def _close_forms(document: dict[str, Any]) -> None:
    """Forbid additional properties in the schemas of forms. Pydantic does so for JSON bodies."""
    for _, _, operation in _operations(document):
        form = operation.get("requestBody", {}).get("content", {}).get("multipart/form-data")
        if form:
            name = form["schema"]["$ref"].rpartition("/")[2]
            document["components"]["schemas"][name]["additionalProperties"] = False


def _locate(document: dict[str, Any], operation: Operation) -> None:
    """Add the `Location` header to 201 and 202 responses whose body has an `id`."""
    for status in {"201", "202"} & operation["responses"].keys():
        answer = operation["responses"][status]
        name = answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        if "id" in document["components"]["schemas"][name]["properties"]:
            answer["headers"] = {"Location": _LOCATION}


def _link(document: dict[str, Any], operations: dict[str, Operation]) -> None:
    """Add links: from created or listed objects to operations that take their ids, and from each page to the next."""
    paths = document["paths"]
    for path, method, operation in _operations(document):
        collection, _, rest = path.partition("/{")
        parameter, _, verb = rest.partition("}")
        inside = (
            f"{collection}/{{{parameter}}}" if rest else next((other for other in paths if _is_item(other, path)), "")
        )
        parameter = inside.removeprefix(collection).strip("/{}")
        if collection in paths and parameter.endswith("id"):
            # A POST to a path that can also be read creates a part of the object, not the object.
            makes_one = verb and "201" in operation["responses"] and "get" not in paths[path]
            makes = method == "post" and (not rest or makes_one)
            if makes or (method == "get" and not rest):
                where = "$response.body#/id" if makes else "$response.body#/items/0/id"
                for name, link in _takers(document, parameter, where):
                    _lead(operation, name, link)
        if any(declared["name"] == "cursor" for declared in operation.get("parameters", ())):
            link_parameters = {
                declared["name"]: f"$request.path.{declared['name']}"
                for declared in operation["parameters"]
                if _in_path(declared)
            }
            next_page = {"parameters": link_parameters | {"cursor": "$response.body#/next_cursor"}}
            _lead(operation, operation["operationId"], next_page)
    for name, leads in _LEADS.items():
        for target, parameters in leads.items():
            if name in operations and target in operations:
                _lead(operations[name], target, {"parameters": parameters})


def _takers(document: dict[str, Any], parameter: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the operations with `parameter` as their only path parameter or as a required field of their body."""
    for _, _, operation in _operations(document):
        in_path = [declared["name"] for declared in operation.get("parameters", ()) if _in_path(declared)]
        if in_path == [parameter]:
            yield operation["operationId"], {"parameters": {parameter: where}}
        elif not in_path and parameter in _required(document, operation):
            yield operation["operationId"], {"requestBody": {parameter: where}}


def _required(document: dict[str, Any], operation: Operation) -> list[str]:
    """Return the required fields of an operation's JSON body."""
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


def _serve_document(app: FastAPI) -> None:
    """Serve the OpenAPI document. It is encoded only once, because it is about 1 MB and callers need no key."""

    @functools.cache
    def encoded() -> tuple[bytes, str]:
        body = json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":")).encode()
        return body, f'"{hashlib.sha256(body).hexdigest()}"'

    def openapi(request: Request) -> Response:
        body, tag = encoded()
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(body, media_type="application/json", headers={"ETag": tag})

    app.add_route("/openapi.json", openapi, include_in_schema=False)


def _serve_page(app: FastAPI) -> None:
    """Serve the page `/docs` and its scripts from this process, so that it works offline and loads no outside script.

    Its URLs are relative, in case a proxy serves `app` under a path prefix.
    """
    swagger = get_swagger_ui_html(
        title=app.title,
        openapi_url="openapi.json",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
    )
    page = bytes(swagger.body)
    [script] = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    script_hash = base64.b64encode(hashlib.sha256(script).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{script_hash}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
    )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    files = importlib.resources.files("fastapi_offline") / "static"
    app.mount("/docs", StaticFiles(directory=str(files)))
