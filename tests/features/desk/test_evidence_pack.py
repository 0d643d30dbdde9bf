"""Evidence packs: their contents and permissions, and offline detection of any change."""

import datetime
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pypdf import PdfReader
from typer.testing import CliRunner

from app.features.desk import evidence_pack as packing
from app.installations import Installation
from lethe.cli import root
from lethe.contract.problems import CertificateInvalid
from lethe.features.desk import evidence_pack
from tests.features.desk.browsing import Browser

PLACE = "/v1/deletion-requests"
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def forgotten(gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> str:
    """Return the id of a request about a person whom a model has forgotten."""
    new_model(new_dataset()["id"])
    work()
    made = forget("p1", external_id="2026-17")
    work()
    return str(made["id"])


def pack_of(gateway: TestClient, request_id: str, **query: str) -> bytes:
    answer = gateway.get(f"{PLACE}/{request_id}/evidence-pack", params=query)
    assert answer.status_code == 200, answer.text
    return answer.content


def members_of(pack: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(pack)) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_a_pack_has_everything_and_verifies_offline(gateway: TestClient, forgotten: str, tmp_path: Path) -> None:
    """The pack contains the reply, certificates, keys, history and audit entries. The command-line tool verifies the
    pack with separately saved keys, and the pack's certificates can be extracted and verified separately."""
    pack = pack_of(gateway, forgotten, language="de")
    members = members_of(pack)
    assert set(members) == {
        "README.txt", "evidence.pdf", "reply.txt", "request.json", "history.json", "certificates.json",
        "certificates.json.jwks.json", "audit-log.json", "public-keys.jwks.json", "manifest.jws",
    }  # fmt: skip
    assert json.loads(members["request.json"])["id"] == forgotten
    assert [event["kind"] for event in json.loads(members["history.json"])][-1] == "completed"
    assert "Ihr Antrag auf Löschung" in members["reply.txt"].decode()
    keys = gateway.get("/.well-known/jwks.json").json()
    verified = evidence_pack.verify(pack, keys)
    assert verified.request_id == forgotten
    assert verified.is_chained
    assert len(verified.verdicts) == 1
    actions = [
        entry["action"] for entry in json.loads(members["audit-log.json"])["entries"] if entry["object_id"] == forgotten
    ]
    assert verified.entries == len(actions)
    assert actions[-1] == "deletion_request.evidence_packed"
    (tmp_path / "pack.zip").write_bytes(pack)
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    command = ["request", "verify-evidence-pack", str(tmp_path / "pack.zip")]
    lethe = root.command_line()
    shown = CliRunner().invoke(lethe, [*command, "--jwks", str(tmp_path / "keys.json")])
    assert shown.exit_code == 0, shown.output
    assert "valid" in shown.output
    assert "--jwks" in CliRunner().invoke(lethe, command).output
    for name in ("certificates.json", "certificates.json.jwks.json"):
        (tmp_path / name).write_bytes(members[name])
    assert CliRunner().invoke(lethe, ["certificate", "verify", str(tmp_path / "certificates.json")]).exit_code == 0


def test_any_flipped_bit_is_found(gateway: TestClient, forgotten: str) -> None:
    """Verification detects a flipped bit in any byte of the pack. It also detects a flipped bit in any member of a pack
    that was re-archived afterwards."""
    pack = pack_of(gateway, forgotten)
    members = members_of(pack)
    keys = gateway.get("/.well-known/jwks.json").json()
    for name, content in members.items():
        for place in (0, len(content) // 2, len(content) - 1):
            changed = bytearray(content)
            changed[place] ^= 1
            with pytest.raises(CertificateInvalid):
                evidence_pack.verify(evidence_pack.archive(members | {name: bytes(changed)}), keys)
    for place in range(0, len(pack), max(1, len(pack) // 400)):
        damaged = bytearray(pack)
        damaged[place] ^= 1
        with pytest.raises(CertificateInvalid):
            evidence_pack.verify(bytes(damaged), keys)


def test_altered_packs_are_refused(gateway: TestClient, forgotten: str, forget: Make, work: Callable[[], int]) -> None:
    """A pack is refused if a member is missing, was added or comes from another pack, or if the pack is signed with
    other keys. A file that is not a pack is refused too."""
    keys = gateway.get("/.well-known/jwks.json").json()
    members = members_of(pack_of(gateway, forgotten))
    other = forget("p2")["id"]
    work()
    foreign = members_of(pack_of(gateway, other))
    wrong = [{name: content for name, content in members.items() if name != left_out} for left_out in members]
    wrong += [members | {"more.txt": b"x"}, members | {"certificates.json": foreign["certificates.json"]}]
    for changed in wrong:
        with pytest.raises(CertificateInvalid):
            evidence_pack.verify(evidence_pack.archive(changed), keys)
    for content in (b"", b"PK", b"x" * 1000, pack_of(gateway, forgotten)[:-7]):
        with pytest.raises(CertificateInvalid):
            evidence_pack.verify(content, keys)
    strange = json.loads(json.dumps(keys))
    strange["keys"][0]["x"] = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    with pytest.raises(CertificateInvalid, match="not signed by any of the given keys"):
        evidence_pack.verify(evidence_pack.archive(members), strange)


def test_a_forged_log_is_detected(gateway: TestClient, installation: Installation, forgotten: str) -> None:
    """A pack is refused if its audit entries do not form a chain or do not match their checkpoint, even if the manifest
    contains their digest."""
    members = members_of(pack_of(gateway, forgotten))
    keys = gateway.get("/.well-known/jwks.json").json()
    log = json.loads(members["audit-log.json"])
    first, *_, last = log["entries"]

    def resigned(**changed: Any) -> bytes:
        parts = {name: content for name, content in members.items() if name != "manifest.jws"}
        parts["audit-log.json"] = json.dumps(log | changed).encode()
        at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        statement = evidence_pack.manifest(forgotten, parts, made_at=at)
        signed = packing.signing.sign(installation.keys, statement, kind=evidence_pack.TYPE)
        return evidence_pack.archive(parts | {"manifest.jws": signed.encode()})

    assert evidence_pack.verify(resigned(), keys).is_chained
    assert not evidence_pack.verify(resigned(linked=False, checkpoint=None), keys).is_chained
    for entries, fault in (
        ([first | {"actor": "usr_1"}, *log["entries"][1:]], "is not what was hashed"),
        ([first, *log["entries"][2:]], "does not follow its predecessor"),
        (log["entries"][:-1], "not the one that the checkpoint signs"),
        ([], "not the one that the checkpoint signs"),
    ):
        with pytest.raises(CertificateInvalid, match=fault):
            evidence_pack.verify(resigned(entries=entries), keys)
    assert last["object_id"] == forgotten


def test_the_pdf_is_about_one_case(gateway: TestClient, forgotten: str, forget: Make) -> None:
    """The PDF contains the reply, the history, the certificate in words and the audit entries of this request, and no
    id of another request."""
    other = forget("p2", identity_verified=False)["id"]
    text = "\n".join(
        page.extract_text() for page in PdfReader(io.BytesIO(pack_of(gateway, forgotten, format="pdf"))).pages
    )
    for said in ("Your erasure request: case 2026-17", "History", "It does not prove:", "evidence_packed", "crt_"):
        assert said in text
    assert other not in text


def test_equal_states_have_equal_packs(gateway: TestClient, installation: Installation, forgotten: str) -> None:
    """Two packs of the same state are identical except for the audit entry about the download itself."""
    first, second = (members_of(pack_of(gateway, forgotten)) for _ in range(2))
    for name in ("reply.txt", "request.json", "history.json", "certificates.json", "public-keys.jwks.json"):
        assert first[name] == second[name]
    entries = [json.loads(members["audit-log.json"])["entries"] for members in (first, second)]
    assert entries[1][: len(entries[0])] == entries[0]


@pytest.mark.parametrize("status", ["in_review", "rejected", "nothing_held"])
def test_a_case_without_certificates_has_a_pack(
    gateway: TestClient, forget: Make, work: Callable[[], int], status: str
) -> None:
    """A request that is in review, was rejected or matched no stored data also has a pack that verifies."""
    request_id = forget("stranger", identity_verified=status == "nothing_held")["id"]
    work()
    if status == "rejected":
        rejection = {"ground": "legal_claims", "explanation": "A claim."}
        gateway.post(f"{PLACE}/{request_id}/reject", json=rejection).raise_for_status()
    pack = pack_of(gateway, request_id)
    verified = evidence_pack.verify(pack, gateway.get("/.well-known/jwks.json").json())
    assert ("certificates.json" in verified.members) == (status == "nothing_held")
    assert len(verified.verdicts) == (status == "nothing_held")


def test_a_reply_that_the_font_cannot_render_is_text(gateway: TestClient, forget: Make, refused: Make) -> None:
    """If no PDF font has all characters of the reply, the pack contains the reply only as text and explains why."""
    request_id = forget("p1", external_id="案件 7", identity_verified=False)["id"]
    refused(gateway.get(f"{PLACE}/{request_id}/evidence-pack?format=pdf"), 409, "reply_unprintable")
    members = members_of(pack_of(gateway, request_id))
    assert "evidence.pdf" not in members
    assert "案件 7" in members["reply.txt"].decode()
    assert "no evidence.pdf" in members["README.txt"].decode()


def test_entries_of_a_long_log_are_not_chained(
    gateway: TestClient, forgotten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the audit log has too many other entries between the request's entries, the pack contains only the request's
    entries and states that they do not form a chain."""
    monkeypatch.setattr(packing, "MAX_LINKED_ENTRIES", 1)
    pack = pack_of(gateway, forgotten)
    verified = evidence_pack.verify(pack, gateway.get("/.well-known/jwks.json").json())
    assert not verified.is_chained
    assert {entry["object_id"] for entry in json.loads(members_of(pack)["audit-log.json"])["entries"]} == {forgotten}
    assert "Compare the hashes with the whole audit log" in " ".join(members_of(pack)["README.txt"].decode().split())


def test_a_pack_is_downloaded_from_the_case(gateway: TestClient, officer: Browser, forget: Make, refused: Make) -> None:
    """A case's page links to its evidence pack. Each download is recorded in the audit log, and an unknown format is
    refused."""
    made = forget("p1", identity_verified=False)["id"]
    refused(gateway.get(f"{PLACE}/{made}/evidence-pack?format=html"), 422, "input_invalid")
    page = officer.get(f"/admin/requests/{made}").text
    assert f'href="/admin/requests/{made}/evidence-pack"' in page
    answer = officer.get(f"/admin/requests/{made}/evidence-pack")
    assert f'filename="evidence-{made}.zip"' in answer.headers["content-disposition"]
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/zip", "no-store")
    log = gateway.get("/v1/audit-log", params={"action": "deletion_request.evidence_packed"}).json()["items"]
    assert [(entry["object_id"], entry["detail"]) for entry in log] == [(made, {"format": "zip"})]
