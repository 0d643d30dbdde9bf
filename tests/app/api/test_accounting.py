"""The endpoints below `/v1/accounting`."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db import Actor
from app.db.tables import LedgerEntry
from app.installations import Installation

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def test_the_ledger_is_a_chain(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work, refused: Refused
) -> None:
    """Ledger entries are listed oldest first in pages, and each entry contains the hash of the previous one."""
    for person in range(1, 4):
        forget(f"p{person}")
        work()
    entries, cursor = [], "0"
    while cursor:
        page = get(f"/accounting/models/{live['id']}/ledger?limit=3&cursor={cursor}")
        entries += page["items"]
        cursor = page["next_cursor"]
    assert [entry["sequence"] for entry in entries] == [1, 2, 3, 4]
    assert [entry["body"]["kind"] for entry in entries] == ["learn", "unlearn", "unlearn", "unlearn"]
    previous = "0" * 64
    for entry in entries:
        body = json.dumps(entry["body"], sort_keys=True, separators=(",", ":"))
        assert entry["previous_hash"] == previous
        assert entry["hash"] == hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
        previous = entry["hash"]
    for cursor in ("-1", "x", "9" * 30):
        refused(gateway.get(f"/v1/accounting/models/{live['id']}/ledger?cursor={cursor}"), 422, "input_invalid")


def test_a_ledger_is_verified(
    live: dict[str, Any], get: Get, installation: Installation, by: Actor, forget: Make, work: Work
) -> None:
    """If the whole ledger verifies, the verdict contains the hash of the last entry; otherwise, it names the faulty
    entry."""
    forget("p1")
    work()
    path = f"/accounting/models/{live['id']}/ledger"
    last = get(path)["items"][-1]
    whole = {
        "model_id": live["id"],
        "valid": True,
        "fault": None,
        "entries": 2,
        "head": last["hash"],
    }
    assert get(f"{path}/verdict") == whole
    with installation.database.writing(by=by) as session:
        for name in session.scalars(sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            session.execute(sa.text(f"DROP TRIGGER {name}"))
        session.execute(sa.delete(LedgerEntry).where(LedgerEntry.sequence == 1))
    verdict = get(f"{path}/verdict")
    assert (verdict["valid"], verdict["entries"], verdict["head"]) == (False, None, None)
    assert verdict["fault"] == f"Model {live['id']}, ledger entry 2: entry 1 is missing before it."
