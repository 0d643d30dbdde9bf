"""The endpoints below `/v1/ledger`, whose responses are all that an outsider needs to verify the ledger."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient
from joserfc import jws
from joserfc.jwk import KeySet

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def test_third_parties_can_recompute_the_ledger(
    gateway: TestClient, get: Get, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """With only the export and the public keys, a third party can recompute every link and find each model's
    entries."""
    for _ in range(2):
        new_model(new_dataset()["id"])
    work()
    forget("p1")
    work()
    header, *lines = (json.loads(line) for line in gateway.get("/v1/ledger/export").text.splitlines())
    assert header.keys() == {"format", "tenant_id", "exported_at"}
    previous = "0" * 64
    entries = {(one["entry"]["model_id"], one["entry"]["sequence"]): one for one in lines if "entry" in one}
    for link in (one["link"] for one in lines if "link" in one):
        assert link["previous_hash"] == previous
        previous = hashlib.sha256(f"{previous}\n{link['body']}".encode()).hexdigest()
        assert link["hash"] == previous
        said = json.loads(link["body"])
        assert entries.pop((said["model_id"], said["entry"]))["entry"]["hash"] == said["hash"]
    assert entries == {}
    public = KeySet.import_key_set(gateway.get("/.well-known/jwks.json").json())
    signed = jws.deserialize_compact(lines[-1]["head"], public, algorithms=["Ed25519"])
    assert signed.headers()["typ"] == "lethe-ledger-head+jws"
    said = json.loads(signed.payload)
    head = get("/ledger/head")
    assert (said["sequence"], said["hash"]) == (4, previous) == (head["sequence"], head["hash"])
    assert head["jws"] == lines[-1]["head"]
    verdict = get("/ledger/verdict")
    assert (verdict["valid"], verdict["entries"], verdict["certificates"], verdict["signed"]) == (True, 4, 2, 4)


def test_an_empty_ledger_is_not_signed(gateway: TestClient, get: Get) -> None:
    """An empty ledger is valid. Its head hash consists of zeros and is not signed, and its export has no links."""
    head = get("/ledger/head")
    assert (head["sequence"], head["hash"], head["jws"]) == (0, "0" * 64, None)
    assert [json.loads(line).keys() for line in gateway.get("/v1/ledger/export").text.splitlines()][1:] == [{"head"}]
    assert get("/ledger/verdict")["valid"]
