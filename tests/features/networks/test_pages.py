"""Networks on pages: deletion."""

import re

from fastapi.testclient import TestClient

from tests.features.desk.browsing import Browser
from tests.features.networks import nets


def test_a_network_is_deleted(officer: Browser, gateway: TestClient) -> None:
    """After a deletion, the list confirms it and no longer contains the network."""
    made = gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", nets.linear())}).json()
    answer = officer.post(f"/admin/networks/{made['id']}/delete")
    page = officer.get(answer.headers["location"]).text
    assert re.search(r'role="status">Network deleted.<', page)
    assert made["id"] not in page
