"""Progress of an upload whose rows go through a network."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.access.service import DEFAULT_TENANT
from app.features.networks import under_way
from app.installations import Installation
from tests.conftest import FORM, npz
from tests.features.networks import nets

NUMBERS = {f"c{place}": {"kind": "standard", "center": 0, "scale": 1} for place in range(nets.WIDTH)}
ROWS = 3000


def csv() -> bytes:
    lines = [",".join((*NUMBERS, "y")), *(f"{','.join(['0.5'] * nets.WIDTH)},{place % 2}" for place in range(ROWS))]
    return "\n".join(lines).encode()


def listed(gateway: TestClient) -> Any:
    return gateway.get("/v1/datasets:encodings").raise_for_status().json()["items"]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_an_upload_reports_its_progress(gateway: TestClient, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """While a network is encoding an upload, other calls see the number of encoded rows and the total. Afterwards the
    upload is no longer listed, and nothing is left on disk. An upload without a network is never listed."""
    monkeypatch.setattr(under_way, "_RENEWED_SECONDS", 0.0)
    network = gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", nets.slow(150))}).json()["id"]
    columns = NUMBERS | {"y": {"role": "label", "values": ["0", "1"]}}
    content = csv() if kind == "csv" else npz(rows=ROWS, features=nets.WIDTH)
    form = {"name": "people", "network_id": network}
    form |= {"schema": json.dumps({"columns": columns})} if kind == "csv" else {"classes": FORM["classes"]}
    answers: list[httpx.Response] = []
    sending = threading.Thread(
        target=lambda: answers.append(
            gateway.post("/v1/datasets", data=form, files={"file": (f"people.{kind}", content)})
        )
    )
    sending.start()
    seen = []
    while sending.is_alive():
        seen += listed(gateway)
    sending.join()
    assert answers[0].status_code == 201, answers[0].text
    said = {"name": "people", "network_id": network, "num_bytes": len(content)}
    assert all(said.items() <= one.items() for one in seen)
    on_its_way = [one["num_encoded"] for one in seen if one["num_rows"] == ROWS]
    assert on_its_way == sorted(on_its_way)
    assert any(0 < done < ROWS for done in on_its_way)
    assert {one["num_rows"] for one in seen} <= {None, ROWS}
    assert listed(gateway) == []


def test_an_upload_continues_without_progress(gateway: TestClient, installation: Installation) -> None:
    """An upload continues if its progress cannot be written. Progress files written by another release are ignored."""
    settings = installation.settings
    folder = settings.data_dir / "encoding"
    given: dict[str, Any] = {"tenant_id": DEFAULT_TENANT, "name": "people", "network_id": "net_1", "num_bytes": 7}
    folder.write_text("No folder.")
    with under_way.metered(settings, **given) as meter:
        meter.advance(7, 7)
        assert listed(gateway) == []
    folder.unlink()
    with under_way.metered(settings, **given):
        (folder / "enc_other.json").write_text(json.dumps(given | {"num_columns": 3}))
        assert [one["name"] for one in listed(gateway)] == ["people"]


def test_stale_progress_is_removed(gateway: TestClient, installation: Installation) -> None:
    """An upload is listed only for its tenant. A stale progress file is removed, and a refused upload leaves no
    file."""
    settings = installation.settings
    given: dict[str, Any] = {"name": "people", "network_id": "net_1", "num_bytes": 7}
    with (
        under_way.metered(settings, tenant_id=DEFAULT_TENANT, **given),
        under_way.metered(settings, tenant_id="b", **given),
    ):
        [shown] = listed(gateway)
        assert given.items() <= shown.items()
        assert (shown["num_encoded"], shown["num_rows"]) == (0, None)
        left = sorted((settings.data_dir / "encoding").iterdir())
        assert left[0].parent.stat().st_mode & 0o077 == 0
        for file in left:
            os.utime(file, (0, 0))
        assert listed(gateway) == []
        assert not any(map(Path.exists, left))
    network = gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", nets.linear())}).json()["id"]
    narrow = {"data": FORM | {"network_id": network}, "files": {"file": ("people.npz", npz(features=2))}}
    refused = gateway.post("/v1/datasets", **narrow)
    assert refused.status_code == 422, refused.text
    assert list((settings.data_dir / "encoding").iterdir()) == []
