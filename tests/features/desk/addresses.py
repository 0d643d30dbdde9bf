"""The addresses of all pages, and an installation in which everything that they name has happened."""

import re
from collections.abc import Callable, Mapping

import httpx
from fastapi.routing import APIRoute

from app.features.desk import endpoints
from app.installations import Installation
from tests.conftest import classes_of, npz
from tests.features.desk.attached import PDF
from tests.features.networks import nets
from tests.features.together.test_authorisation import delivered

MARIA = {"name": "Maria Lopez", "email": "maria@example.com", "role": "officer"}
ELSEWHERE = {"/admin/": 303, "/admin/session": 204, "/admin/welcome": 410, "/admin/oidc": 404}
ELSEWHERE |= {"/admin/oidc/return": 404}
"""Addresses that redirect or are for invited people, with their status."""


def paths() -> list[str]:
    """Return the path of every page and file, with names in braces."""
    routes = [route for router in endpoints.routers() for route in router.routes if isinstance(route, APIRoute)]
    return [route.path for route in routes if "GET" in route.methods]


def of(path: str, ids: Mapping[str, str]) -> str:
    """Return a path with its placeholders replaced by ids."""
    return re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], path)


def happened(installation: Installation, api: httpx.Client, work: Callable[[], object]) -> dict[str, str]:
    """Create the objects that the paths name: a person forgotten by a model and another whose request is in review.
    `work` runs the pending work."""

    def made(path: str, **sent: object) -> str:
        answer = api.post(f"/v1{path}", **sent)  # type: ignore[arg-type]
        return str(answer.raise_for_status().json()["id"])

    people = {"data": {"name": "people", "classes": classes_of(2)}, "files": {"file": ("people.npz", npz())}}
    dataset = made("/datasets", **people)
    model = made("/models", json={"name": "model", "dataset_id": dataset, "l2": 0.05})
    work()
    request = made("/deletion-requests", json={"subject_id": "p1", "external_id": "case-1"})
    work()
    made("/deletion-requests", json={"subject_id": "p2", "identity_verified": False})
    api.get(f"/v1/models/{model}/versions/2/weights").raise_for_status()
    rehearsal = made(f"/models/{model}/rehearsals", json={"people": 10})
    work()
    [asked] = api.get(f"/v1/deletion-requests/{request}").json()["models"]
    return {
        "dataset_id": dataset,
        "model_id": model,
        "network_id": made("/networks", data=nets.FORM, files={"file": ("net.onnx", nets.linear())}),
        "rehearsal_id": rehearsal,
        "request_id": request,
        "attachment_id": made(f"/deletion-requests/{request}/attachments", files={"file": ("a.pdf", PDF)}),
        "certificate_id": asked["certificate_id"],
        "run_id": api.get("/v1/runs").json()["items"][0]["id"],
        "delivery_id": delivered(installation, request),
        "user_id": made("/users", json=MARIA),
        "key_id": api.get("/v1/api-keys").json()["items"][0]["id"],
        "name": "gdp_eps",
    }
