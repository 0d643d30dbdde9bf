import datetime
import hashlib
import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from joserfc.jwk import KeySet

from app.audit import checkpoints, repository
from app.audit.checkpoints import AUDIT, Head, entry_hash
from app.db import Actor, now
from app.db.tables import AuditEntry, Checkpoint
from app.errors import AuditCorrupt
from app.installations import Installation
from app.keys import Keys
from lethe.verification.chains import GENESIS, Verified
from tests.tables import each

Record = Callable[..., None]
AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
COLUMNS = [column.key for column in sa.inspect(AuditEntry).column_attrs]


@pytest.fixture
def log(installation: Installation, other: Actor, record: Record) -> tuple[list[AuditEntry], list[Checkpoint]]:
    """Return a tenant's log of ten entries that was signed after the fourth and after the eighth entry."""
    for number in (2, 4):
        record(number, actor=other)
        with installation.database.reading() as session:
            heads = checkpoints.due(session, every_seconds=0.0)
        with installation.database.writing() as session:
            checkpoints.checkpoint(session, installation.keys, heads)
    record(2, actor=other)
    with installation.database.reading() as session:
        entries = list(repository.all_entries(session, tenant_id=other.tenant_id))
        signed = list(repository.all_checkpoints(session, AUDIT, tenant_id=other.tenant_id))
    assert [len(entries), *(one.sequence for one in signed)] == [10, 4, 8]
    return entries, signed


@pytest.fixture
def verified(installation: Installation, other: Actor) -> Callable[..., Verified]:
    def check(entries: Sequence[AuditEntry], signed: Sequence[Checkpoint]) -> Verified:
        return AUDIT.verify(other.tenant_id, entries, signed, KeySet([installation.keys.signing_key]))

    return check


def _with(entry: AuditEntry, **changed: Any) -> AuditEntry:
    return AuditEntry(**{name: getattr(entry, name) for name in COLUMNS} | changed)


def _rechained(entries: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Return the entries with every number and hash recomputed, as a thorough forger would."""
    chain: list[AuditEntry] = []
    for sequence, entry in enumerate(entries, start=1):
        chain.append(_with(entry, sequence=sequence, previous_hash=chain[-1].hash if chain else GENESIS))
        chain[-1].hash = entry_hash(chain[-1])
    return chain


def test_a_whole_log_verifies(
    log: tuple[list[AuditEntry], list[Checkpoint]], verified: Callable[..., Verified]
) -> None:
    """An unaltered log verifies, and the report contains its length and the last signed entry."""
    entries, _ = log
    assert verified(*log) == Verified(entries=10, checkpoints=2, signed=8, head=entries[-1].hash)
    assert verified(entries, []).signed == 0
    assert verified([], []) == Verified(entries=0, checkpoints=0, signed=0, head=GENESIS)


def test_an_outsider_computes_the_same_hash(log: tuple[list[AuditEntry], list[Checkpoint]]) -> None:
    """The hash of an entry is the SHA-256 hash of its predecessor's hash and its own fields as sorted JSON, and depends
    on nothing else."""
    for entry in log[0]:
        fields = ("tenant_id", "sequence", "actor", "action", "object_id", "detail")
        body = {name: getattr(entry, name) for name in fields} | {"at": entry.at.isoformat()}
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        assert entry.hash == hashlib.sha256(f"{entry.previous_hash}\n{text}".encode()).hexdigest()


@each(
    ("change", "fault"),
    [
        ({"actor": "key_0"}, "entry 6: it is not what was hashed"),
        ({"detail": {"count": 7}}, "entry 6: it is not what was hashed"),
        ({"object_id": ""}, "entry 6: it is not what was hashed"),
        ({"hash": "0" * 64}, "entry 6: it is not what was hashed"),
        ({"previous_hash": "0" * 64}, "entry 6: it does not follow its predecessor"),
        ({"tenant_id": "ten_default"}, "entry 6: it is of another tenant"),
        ({"sequence": 7}, "entry 6: it is missing"),
    ],
)
def test_a_changed_entry_is_reported(
    log: tuple[list[AuditEntry], list[Checkpoint]],
    verified: Callable[..., Verified],
    change: dict[str, Any],
    fault: str,
) -> None:
    """If an entry was changed, verification names that entry."""
    entries, signed = log
    with pytest.raises(AuditCorrupt, match=fault):
        verified([*entries[:5], _with(entries[5], **change), *entries[6:]], signed)


def test_removed_and_swapped_entries_are_reported(
    log: tuple[list[AuditEntry], list[Checkpoint]], verified: Callable[..., Verified]
) -> None:
    """If an entry is missing or repeated, or if two entries are swapped, verification names the first position at which
    the expected entry is missing."""
    entries, signed = log
    for forged in (
        [*entries[:5], *entries[6:]],
        [*entries[:5], entries[6], entries[5], *entries[7:]],
        [*entries[:5], entries[4], *entries[5:]],
    ):
        with pytest.raises(AuditCorrupt, match="entry 6: it is missing"):
            verified(forged, signed)


@each("left", [0, 3, 7])
def test_a_truncated_log_contradicts_its_checkpoint(
    log: tuple[list[AuditEntry], list[Checkpoint]], verified: Callable[..., Verified], left: int
) -> None:
    """A log that lost its last entries, or all of them, still has consistent hashes. However, it contradicts the
    checkpoint, which covers more entries than remain."""
    entries, signed = log
    assert verified(entries[:left], [one for one in signed if one.sequence <= left])
    with pytest.raises(AuditCorrupt, match=f"entry {left + 1}: it is missing, and entry [48] was signed"):
        verified(entries[:left], signed)


@each("forge", ["changed", "removed", "inserted"])
def test_a_rewritten_log_contradicts_its_checkpoint(
    log: tuple[list[AuditEntry], list[Checkpoint]], verified: Callable[..., Verified], forge: str
) -> None:
    """If an entry is altered and all later hashes are recomputed, the log contradicts the next checkpoint."""
    entries, signed = log
    match forge:
        case "changed":
            forged = _rechained([*entries[:5], _with(entries[5], actor="key_0"), *entries[6:]])
        case "removed":
            forged = _rechained([*entries[:5], *entries[6:]])
        case _:
            forged = _rechained([*entries[:5], _with(entries[0], action="thing.undone"), *entries[5:]])
    assert verified(forged, []).entries == len(forged)
    with pytest.raises(AuditCorrupt, match="entry 8: it is not what was signed"):
        verified(forged, signed)


def test_a_forged_checkpoint_is_reported(
    installation: Installation,
    other: Actor,
    log: tuple[list[AuditEntry], list[Checkpoint]],
    verified: Callable[..., Verified],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Without the signing key, a forger cannot produce a checkpoint for a rewritten log, and cannot substitute one
    checkpoint for another."""
    entries, signed = log
    forged = _rechained([*entries[:5], *entries[6:]])
    head = Head(chain=AUDIT, tenant_id=other.tenant_id, sequence=8, hash=forged[7].hash)
    with installation.database.reading() as session:
        by_stranger = checkpoints.sign(Keys(tmp_path_factory.mktemp("keys")).create(), head, at=now(session))
    reused = Checkpoint(
        log="audit",
        tenant_id=head.tenant_id,
        sequence=8,
        hash=head.hash,
        jws=signed[1].jws,
        signed_at=signed[1].signed_at,
    )
    for check in (by_stranger, reused):
        with pytest.raises(AuditCorrupt, match="checkpoint 8: it was not signed"):
            verified(forged, [signed[0], check])


def test_a_long_log_verifies_in_constant_memory(other: Actor, verified: Callable[..., Verified]) -> None:
    """Verifying a log of ten thousand entries takes no more memory than a short one."""

    def chain() -> Iterator[AuditEntry]:
        previous = GENESIS
        for sequence in range(1, 10_001):
            entry = AuditEntry(
                tenant_id=other.tenant_id,
                sequence=sequence,
                at=AT,
                actor="key_1",
                action="thing.done",
                object_id="thing",
                detail={},
                previous_hash=previous,
            )
            previous = entry.hash = entry_hash(entry)
            yield entry

    tracemalloc.start()
    try:
        assert verified(chain(), []).entries == 10_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
