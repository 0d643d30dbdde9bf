"""Every page there is, once on each database, of an installation in which everything has happened."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from app.dashboard import site
from app.installations import Installation
from tests.app.api.test_authorisation import delivered
from tests.app.dashboard import catalogue
from tests.app.dashboard.browsing import Browser
from tests.app.deletion.attached import PDF
from tests.app.encoders import nets

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
MARIA = {"name": "Maria Lopez", "email": "maria@example.com", "role": "officer"}
ELSEWHERE = {"/admin/": 303, "/admin/session": 204, "/admin/welcome": 410, "/admin/oidc": 404}
ELSEWHERE |= {"/admin/oidc/return": 404}
"""What leads on, or is for those who are invited, and with which status."""


@pytest.fixture
def ids(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Any,
) -> dict[str, str]:
    """What the addresses of pages name: a person was forgotten by a model, another waits to be reviewed."""
    dataset = new_dataset()["id"]
    model = new_model(dataset)["id"]
    work()
    request = forget("p1", external_id="case-1")["id"]
    work()
    forget("p2", identity_verified=False)
    gateway.get(f"/v1/models/{model}/versions/2/weights")
    rehearsal = gateway.post(f"/v1/models/{model}/rehearsals", json={"people": 10}).json()["id"]
    work()
    network = gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", nets.linear())}).json()
    attached = gateway.post(f"/v1/deletion-requests/{request}/attachments", files={"file": ("a.pdf", PDF)})
    [asked] = get(f"/deletion-requests/{request}")["models"]
    return {
        "dataset_id": dataset,
        "model_id": model,
        "network_id": network["id"],
        "rehearsal_id": rehearsal,
        "request_id": request,
        "attachment_id": attached.json()["id"],
        "certificate_id": asked["certificate_id"],
        "run_id": get("/runs")["items"][0]["id"],
        "delivery_id": delivered(installation, request),
        "user_id": gateway.post("/v1/users", json=MARIA).json()["id"],
        "key_id": get("/api-keys")["items"][0]["id"],
        "name": "gdp_eps",
    }


def test_every_page_is_shown(officer: Browser, ids: dict[str, str]) -> None:
    """Each address that is read answers with a page or a file."""
    routes = [route for module in site._PAGES for route in module.router.routes if isinstance(route, APIRoute)]
    paths = [route.path for route in routes if "GET" in route.methods]
    assert len(paths) > 30
    for path in paths:
        answer = officer.get(re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], path))
        assert answer.status_code == ELSEWHERE.get(path, 200), path


def test_every_page_in_german(officer: Browser, ids: dict[str, str]) -> None:
    """No page says in English what the catalogue has in German, but for words of the API, which are marked."""
    routes = [route for module in site._PAGES for route in module.router.routes if isinstance(route, APIRoute)]
    german = {one.id: one.string for one in catalogue.read(catalogue.path_of("de"), "de")}
    english = {text for text, said in german.items() if isinstance(text, str) and len(text) > 12 and said != text}
    for path in (route.path for route in routes if "GET" in route.methods):
        answer = officer.get(
            re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], path), **{"Accept-Language": "de-DE,de;q=0.9"}
        )
        if answer.status_code != 200 or not answer.headers["content-type"].startswith("text/html"):
            continue
        assert "<html" not in answer.text or '<html lang="de">' in answer.text, path
        bare = re.sub(r'<(\w+)[^>]* lang="en">.*?</\1>', "", answer.text, flags=re.S)
        bare = re.sub(r"<(pre|code)\b.*?</\1>", "", bare, flags=re.S)
        read = html.unescape("\n".join([re.sub(r"<[^>]*>", "\n", bare), *re.findall(r'="([^"]*)"', bare)]))
        lines = {" ".join(line.split()) for line in read.splitlines()}
        assert not lines & english, path


def test_filters_and_searches(officer: Browser, ids: dict[str, str]) -> None:
    """What lists are filtered and sorted by, people searched for, and what is recomputed, is answered."""
    for filters in (
        "status=completed",
        "regulation=gdpr",
        "due=soon",
        "order=deadline",
        "regulation=gdpr&status=accepted",
    ):
        assert officer.get(f"/admin/requests?{filters}").status_code == 200
    assert ids["request_id"] in officer.get("/admin/requests?regulation=gdpr&status=completed").text
    for by, sought in (("subject_id", "p1"), ("external_id", "case-1")):
        assert ids["request_id"] in officer.post("/admin/requests/search", by=by, sought=sought).text
    assert officer.post("/admin/suppressions/search", subject_id="p1").status_code == 200
    assert "The ledger holds." in officer.post(f"/admin/models/{ids['model_id']}/ledger/verify").text
    assert officer.post(f"/admin/certificates/{ids['certificate_id']}/verify").status_code == 200
    assert officer.post("/admin/audit-log/verify").status_code == 200
    assert "steps to learn" in officer.post("/admin/models/new/preview", dataset_id=ids["dataset_id"]).text
