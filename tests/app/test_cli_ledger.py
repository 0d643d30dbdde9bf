"""`lethe ledger verify` against an attacker who can write to the database, and offline against a saved head."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.access.service import DEFAULT_TENANT
from app.accounting import repository
from app.db.tables import LedgerEntry, LedgerLink
from app.installations import Installation
from app.journal import tombstones
from app.keys import Keys
from lethe.verification.chains import GENESIS, canonical, link_hash
from tests.command_line import Lethe, refused

Make = Callable[..., dict[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Two models of one dataset that have forgotten two people, and the ledger as it was exported at that time."""

    installation: Installation
    models: list[str]
    head: Path
    export: Path

    def tamper(self, *statements: str) -> None:
        """Execute SQL without triggers or foreign keys, as an attacker with the database owner's password could."""
        with self.installation.database.engine.connect() as connection:
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            named = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            for name in connection.exec_driver_sql(named).scalars().all():
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA foreign_keys=ON")
            connection.exec_driver_sql("BEGIN")

    def rechain(self) -> None:
        """Recompute the hash of every entry and every link, as a thorough forger would."""
        with self.installation.database.reading() as session:
            entries = [(one.model_id, one.sequence, one.body) for one in repository.all_entries(session)]
            links = [(link.sequence, json.loads(link.body)) for link in session.scalars(sa.select(LedgerLink))]
        statements, hashes, previous = [], {}, {}
        for model_id, sequence, body in entries:
            before = previous.get(model_id, GENESIS)
            hashes[model_id, sequence] = previous[model_id] = link_hash(before, body)
            where = f"model_id = '{model_id}' AND sequence = {sequence}"
            values = f"previous_hash = '{before}', hash = '{previous[model_id]}'"
            statements.append(f"UPDATE ledger_entries SET {values} WHERE {where}")
        before, statements = GENESIS, [*statements, "DELETE FROM ledger_links"]
        left = [said for _, said in sorted(links) if (said["model_id"], said["entry"]) in hashes]
        for sequence, said in enumerate(left, start=1):
            said |= {"sequence": sequence, "hash": hashes[said["model_id"], said["entry"]]}
            body, after = canonical(said), link_hash(before, canonical(said))
            values = f"'{said['tenant_id']}', {sequence}, '{body}', '{before}', '{after}'"
            statements.append(f"INSERT INTO ledger_links VALUES ({values})")
            before = after
        self.tamper(*statements)


@pytest.fixture
def story(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    tmp_path: Path,
    lethe: Lethe,
    monkeypatch: pytest.MonkeyPatch,
) -> Story:
    dataset = new_dataset()
    models = [new_model(dataset["id"])["id"] for _ in range(2)]
    work()
    head, export = tmp_path / "head.json", tmp_path / "ledger.jsonl"
    for person in ("p1", "p2"):
        forget(person)
        work()
        head.write_text(gateway.get("/v1/ledger/head").text) if person == "p1" else None
    export.write_bytes(gateway.get("/v1/ledger/export").content)
    Path(f"{export}.jwks.json").write_text(gateway.get("/.well-known/jwks.json").text)
    tombstones.record(installation)
    monkeypatch.setenv("LETHE_DATA_DIR", str(installation.settings.data_dir))
    return Story(installation=installation, models=models, head=head, export=export)


def corrupt(lethe: Lethe, *arguments: str | Path, code: str = "ledger_corrupt") -> str:
    """Check that `ledger verify` is refused with `code`, and return its message without the gateway's log lines."""
    ended = lethe("ledger", "verify", *arguments)
    said = "".join(line for line in ended.err.splitlines(keepends=True) if not line.startswith("{"))
    refused(dataclasses.replace(ended, err=said), code)
    return said


def test_a_true_ledger_verifies(story: Story, lethe: Lethe) -> None:
    """The entries, links, certificates and heads of an unaltered ledger verify, in the database and in an export, with
    and without a saved head."""
    ended = lethe("ledger", "verify")
    assert (ended.code, ended.err) == (0, "")
    assert "valid  6 entries of 2 models" in ended.out
    assert "signed up to link 6 of 6, 4 certificates agree" in ended.out
    for arguments in ((), ("--head", story.head)):
        ended = lethe("ledger", "verify", *arguments, story.export)
        assert (ended.code, ended.err) == (0, "")
        assert "valid  6 entries of 2 models" in ended.out
        assert "signed up to link 6 of 6" in ended.out
        assert lethe("ledger", "verify", *arguments).code == 0


def rewritten(story: Story, *, everything: bool) -> None:
    """Turn a deletion of one row into a deletion of zero rows wherever it is recorded, and recompute every hash."""
    one, none = ('"requests":[{"records":1,', '"requests":[{"records":0,')
    story.tamper(f"UPDATE ledger_entries SET body = replace(body, '{one}', '{none}')")
    story.rechain()
    if everything:
        story.tamper("DELETE FROM checkpoints WHERE log = 'ledger'", "DELETE FROM certificates")


def cut(story: Story, *, everything: bool) -> None:
    """Remove the last entry of a model and its version."""
    of_last = f"model_id = '{story.models[1]}'"
    story.tamper(
        f"DELETE FROM ledger_entries WHERE {of_last} AND sequence = 3",
        f"DELETE FROM versions WHERE {of_last} AND number = 3",
        f"DELETE FROM certificates WHERE {of_last} AND version = 3",
    )
    if everything:
        story.rechain()
        story.tamper("DELETE FROM checkpoints WHERE log = 'ledger'")


def removed(story: Story, *, everything: bool) -> None:
    """Remove a model and everything about it."""
    gone = story.models[0]
    tables = ("ledger_entries", "versions", "certificates", "request_models")
    story.tamper(*(f"DELETE FROM {table} WHERE model_id = '{gone}'" for table in tables))
    story.tamper(f"DELETE FROM models WHERE id = '{gone}'")
    if everything:
        story.rechain()
        story.tamper("DELETE FROM checkpoints WHERE log = 'ledger'")


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("attack", [rewritten, cut, removed])
def test_a_rewritten_database_is_detected(
    story: Story, lethe: Lethe, attack: Callable[..., None], everything: bool
) -> None:
    """A rewritten count, a removed last version and a removed model are each detected, even if every hash was
    recomputed and the signatures were removed from the database, because the tombstones and any saved head still
    contain the original head."""
    attack(story, everything=everything)
    said = corrupt(lethe)
    if everything:
        assert "the head that was kept" in said
        story.installation.settings.resolved_tombstones().unlink()
        if attack is not cut:
            assert "the head that was kept" in corrupt(lethe, "--head", story.head)
    ended = lethe("ledger", "verify", "--head", story.head, story.export)
    assert ended.code == 0, "what was exported before stays what it was"


def test_a_tampered_ledger_is_not_exported(story: Story, gateway: TestClient) -> None:
    """If the last link differs from the signed one, both the head and the export are refused, and the verdict names the
    fault."""
    cut(story, everything=False)
    rewritten(story, everything=False)
    for path in ("head", "export"):
        answer = gateway.get(f"/v1/ledger/{path}")
        assert (answer.status_code, answer.json()["code"]) == (500, "ledger_corrupt")
    verdict = gateway.get("/v1/ledger/verdict").json()
    assert (verdict["valid"], verdict["entries"]) == (False, None)
    assert verdict["fault"]


def test_changed_certificates_are_reported(story: Story, lethe: Lethe) -> None:
    """A certificate that was changed in the database is reported by its ID."""
    story.tamper("UPDATE certificates SET jws = substr(jws, 1, length(jws) - 4) || 'AAAA'")
    assert "Certificate crt_" in corrupt(lethe)


def test_invalid_export_lines_are_refused(story: Story, lethe: Lethe) -> None:
    """An export with truncated, repeated, changed, contradictory or added lines is refused, and the error names
    the line if possible."""
    lines = story.export.read_text().splitlines(keepends=True)
    entry = next(number for number, line in enumerate(lines) if line.startswith('{"entry"'))
    for changed in (
        lines[:-1],
        [*lines, lines[1]],
        [lines[0], *lines[2:]],
        [*lines[:2], lines[1], *lines[2:]],
        [*lines[:entry], *lines[entry + 1 :]],
        [line for line in lines if story.models[0] not in line],
        [line for line in lines if not (line.startswith('{"version"') and story.models[0] in line)],
        [line.replace('"records', '"recorbs') for line in lines],
        [lines[0].replace(DEFAULT_TENANT, "ten_other"), *lines[1:]],
        [lines[0].replace("}", ', "tenant_id": "ten_other"}'), *lines[1:]],
        [lines[0], lines[1].replace('"sequence":1', '"sequence":2,"sequence":1', 1), *lines[2:]],
        [lines[0], lines[1].replace('"sequence":1', '"sequence":1.0', 1), *lines[2:]],
        [*lines[:-1], '{"head":null}\n'],
        ["[]\n"],
        ["\n"],
        [],
    ):
        story.export.write_text("".join(changed))
        corrupt(lethe, story.export)


def test_mismatched_heads_are_refused(story: Story, lethe: Lethe, gateway: TestClient, tmp_path: Path) -> None:
    """Verification against another issuer's key, another tenant's export, a newer head or a file without a head is
    refused, each with a different error."""
    jwks = tmp_path / "stranger.json"
    jwks.write_text(json.dumps({"keys": [Keys(tmp_path / "keys").create().signing_key.as_dict(private=False)]}))
    assert "not signed with any of the given keys" in corrupt(lethe, story.export, "--jwks", jwks)
    newest = tmp_path / "newest"
    newest.write_text(gateway.get("/v1/ledger/head").json()["jws"])
    lines = story.export.read_text().splitlines(keepends=True)
    older = tmp_path / "older.jsonl"
    shutil.copy(f"{story.export}.jwks.json", f"{older}.jwks.json")
    kept = json.loads(story.head.read_text())
    bodies = [json.loads(json.loads(line)["link"]["body"]) for line in lines if line.startswith('{"link"')]
    known = {(said["model_id"], said["entry"]) for said in bodies[: kept["sequence"]]}

    def was_there(line: str) -> bool:
        ((kind, said),) = list(json.loads(line).items())[:1] if not line.startswith('{"format"') else [("header", None)]
        match kind:
            case "link":
                return bool(said["sequence"] <= kept["sequence"])
            case "entry":
                return (said["model_id"], said["sequence"]) in known
            case "version":
                return (said["model_id"], said["number"]) in known
            case _:
                return kind == "header"

    then = [line for line in lines if was_there(line)]
    older.write_text("".join([*then, json.dumps({"head": kept["jws"]}) + "\n"]))
    assert lethe("ledger", "verify", older).code == 0
    assert "it is older than the head, or what came last was removed" in corrupt(lethe, "--head", newest, older)
    other = gateway.post("/v1/tenants", json={"name": "other"}).json()
    theirs = tmp_path / "theirs.jsonl"
    theirs.write_bytes(
        gateway.get("/v1/ledger/export", headers={"Authorization": f"Bearer {other['admin_key']}"}).content
    )
    shutil.copy(f"{story.export}.jwks.json", f"{theirs}.jwks.json")
    assert lethe("ledger", "verify", theirs).code == 0
    assert "the export of ten_" in corrupt(lethe, "--head", newest, theirs)
    for none in ("", "{}", "a.b.c", '{"jws": 3}', story.head.read_text().replace('"jws"', '"jws": "", "jws"')):
        newest.write_text(none)
        assert "holds no head of a ledger" in corrupt(lethe, "--head", newest, story.export)


def test_a_missing_tenant_is_reported_by_its_id(story: Story, lethe: Lethe) -> None:
    """An unknown tenant is reported by its ID, and a known tenant can be verified without the other tenants."""
    assert lethe("ledger", "verify", "--tenant", DEFAULT_TENANT).code == 0
    corrupt(lethe, "--tenant", "ten_0", code="tenant_unknown")


def test_entries_are_linked_in_order_of_publication(story: Story) -> None:
    """The chain over all models contains one link for each entry, in the order of publication."""
    with story.installation.database.reading() as session:
        links = list(session.scalars(sa.select(LedgerLink).order_by(LedgerLink.sequence)))
        entries = session.scalar(sa.select(sa.func.count()).select_from(LedgerEntry))
    said = [json.loads(link.body) for link in links]
    assert len(said) == entries == 6
    assert [one["sequence"] for one in said] == list(range(1, 7))
    for model_id in story.models:
        assert [one["entry"] for one in said if one["model_id"] == model_id] == [1, 2, 3]
