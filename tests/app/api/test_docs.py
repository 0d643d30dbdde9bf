"""The page `/docs`, every part of which the service itself serves."""

import base64
import hashlib
import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app import accounting_main
from app.config import Settings
from app.main import create_app


@pytest.fixture(params=[create_app, accounting_main.create_app])
def service(request: pytest.FixtureRequest, settings: Settings) -> FastAPI:
    app: FastAPI = request.param(settings)
    return app


def test_the_page_loads_nothing_from_the_internet(service: FastAPI) -> None:
    """The service itself serves everything that the documentation page loads, whatever path prefix it is mounted
    under."""
    client = TestClient(service)
    page = client.get("/docs").text
    loaded = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url: '([^']*)'", page)
    assert sorted(loaded) == ["docs/favicon.png", "docs/swagger-ui-bundle.js", "docs/swagger-ui.css", "openapi.json"]
    for path in loaded:
        assert client.get(f"/{path}").status_code == 200
    assert client.get("/redoc").status_code == 404
    assert client.get("/docs/../../core.py").status_code == 404


def test_the_page_runs_only_the_services_scripts(service: FastAPI) -> None:
    """The content security policy allows only scripts served by the service and the page's inline script, which is
    identified by its hash."""
    answer = TestClient(service).get("/docs")
    policy = answer.headers["content-security-policy"]
    [script] = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{script_hash}';" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
