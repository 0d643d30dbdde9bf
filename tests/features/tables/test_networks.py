"""A dry run of rows that are a network's features, from the file on this machine, as the gateway would make them."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from lethe.contract.problems import (
    InputInvalid,
    NetworkFailed,
    NetworkInvalid,
    Problem,
    RowInvalid,
    SchemaInvalid,
    UploadTooLarge,
)
from lethe.encoding.schema import parse_schema
from lethe.features.networks.encoders.limits import Limits
from lethe.features.tables import networks
from lethe.features.tables.networks import NetworkFile
from lethe.features.tables.previewing import preview
from tests.features.networks import nets
from tests.features.tables.encoded import NUMBERS, SCHEMA, X, table
from tests.stored import rows_of

ONE: dict[str, Any] = {"schema": SCHEMA, "epsilons": [4.0], "l2": [0.01]}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(nets.linear())
    return path


def test_rows_match_the_gateway(gateway: TestClient, network: Path, tmp_path: Path) -> None:
    """A dry run that is given the network's file produces rows bit-identical to those of an upload that uses the
    registered network. It names the network, reports its progress and evaluates models trained on the network's
    features."""
    told: list[tuple[str, int, int | None]] = []
    digest = hashlib.sha256(nets.linear()).hexdigest()
    found = preview(table(), network=NetworkFile(network, digest), progress=lambda *said: told.append(said), **ONE)
    made = gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", network.read_bytes())}).json()
    assert found.network is not None
    assert {name: made[name] for name in ("sha256", "output_size", "num_parameters")} == {
        name: getattr(found.network, name) for name in ("sha256", "output_size", "num_parameters")
    }
    table().to_csv(tmp_path / "rows.csv", index=False)
    form = {"name": "rows", "schema": json.dumps(SCHEMA), "network_id": made["id"]}
    sent = gateway.post("/v1/datasets", data=form, files={"file": ("rows.csv", (tmp_path / "rows.csv").read_bytes())})
    row = np.zeros(nets.OUT + 1, np.float32)
    for name, place, number in found.row:
        row[place if name == "network" else -1] = number
    stored = rows_of(gateway.app.state.installation, sent.json()["id"]).features  # type: ignore[attr-defined]
    assert (stored == row).all(axis=1).any()
    assert found.num_features == sent.json()["num_features"] == nets.OUT
    assert [one.name for one in found.columns] == [*NUMBERS]
    assert told == [("encoding", done, 120) for done in (32, 64, 96, 120)] + [("fitting", 0, 1)]
    plain = preview(table(), **ONE)
    assert plain.network is None
    assert found.plans[0].accuracy_without_noise > 0.85
    assert found.scikit_learn is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "given", "error", "said"),
    [
        (None, {}, InputInvalid, "`lethe network file ID encoder.onnx` fetches"),
        (nets.linear(), {"sha256": "0" * 64}, NetworkInvalid, "has the SHA-256 "),
        (
            nets.slow(400),
            {"sha256": "0" * 64, "limits": Limits(seconds=1e-4)},
            NetworkInvalid,
            "has the SHA-256 ",
        ),
        (
            nets.linear(),
            {"sha256": "0" * 64, "limits": Limits(file_bytes=10)},
            UploadTooLarge,
            "more than 10 bytes",
        ),
        (nets.slow(400), {"limits": Limits(seconds=1e-4)}, NetworkFailed, "LETHE_NETWORK_SECONDS"),
        (nets.logarithm(), {}, RowInvalid, "line 37"),
        (b"PK", {}, NetworkInvalid, "is a pickle or a zip"),
        (
            nets.onnx_file([nets.node("Relu", "x")], shape=(5,), out=("batch", 5)),
            {},
            SchemaInvalid,
            "5 numbers of a row",
        ),
    ],
)
def test_an_unusable_network_is_refused(
    content: bytes | None, given: dict[str, Any], error: type[Problem], said: str, tmp_path: Path
) -> None:
    """A network file is refused if it is missing, is not a network, is too large or too slow, does not fit the schema,
    or returns numbers that are not finite. A file that differs from the expected one is refused without being run. The
    error contains advice and quotes no row."""
    path, far = tmp_path / "net.onnx", X.copy()
    far[36] = -1000.0 * np.sign(nets.WEIGHTS[:, 0])
    if content is not None:
        path.write_bytes(content)
    numbers = {name: column | {"clip": 1e4} for name, column in NUMBERS.items()}
    schema = {"columns": SCHEMA["columns"] | numbers}
    with pytest.raises(error) as refusal:
        preview(table(far), network=NetworkFile(path, **given), **ONE | {"schema": schema})
    assert said in refusal.value.line
    assert "1000" not in refusal.value.line


def test_networks_are_run_only_on_linux(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system that cannot sandbox a process, a network file is refused without being read."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NetworkFailed, match="needs Linux"):
        networks.opened(network, parse_schema(SCHEMA))
