import json
from collections.abc import Callable

import pytest
from joserfc import jws
from joserfc.jwk import KeySet, OKPKey

from app.audit import checkpoints, repository
from app.audit.checkpoints import AUDIT, Head
from app.db import Actor
from app.db.tables import Checkpoint
from app.installations import Installation
from app.keys import Keys

Record = Callable[..., None]
HOUR = 3600.0


@pytest.fixture
def sign(installation: Installation) -> Callable[..., list[Head]]:
    """Return a function that signs all due checkpoints, as a worker does, and returns them."""

    def do(every_seconds: float = HOUR) -> list[Head]:
        with installation.database.reading() as session:
            heads = checkpoints.due(session, every_seconds=every_seconds)
        with installation.database.writing() as session:
            checkpoints.checkpoint(session, installation.keys, heads)
        return heads

    return do


def _of(installation: Installation, tenant_id: str) -> list[Checkpoint]:
    with installation.database.reading() as session:
        return list(repository.all_checkpoints(session, AUDIT, tenant_id=tenant_id))


def _length(installation: Installation, tenant_id: str) -> int:
    with installation.database.reading() as session:
        return len(list(repository.all_entries(session, tenant_id=tenant_id)))


def test_logs_that_have_grown_are_signed(
    installation: Installation, by: Actor, other: Actor, record: Record, sign: Callable[..., list[Head]]
) -> None:
    """The head of a tenant's log is signed as soon as the log has entries, and again once the log has grown and an hour
    has passed."""
    lengths = {tenant_id: _length(installation, tenant_id) for tenant_id in (by.tenant_id, other.tenant_id)}
    assert {head.tenant_id: head.sequence for head in sign()} == lengths
    assert sign(0.0) == []
    record(3)
    assert sign() == []
    [head] = sign(0.0)
    assert (head.tenant_id, head.sequence) == (by.tenant_id, lengths[by.tenant_id] + 3)
    assert [one.sequence for one in _of(installation, by.tenant_id)] == [lengths[by.tenant_id], head.sequence]
    assert [one.sequence for one in _of(installation, other.tenant_id)] == [2]


def test_a_thousand_entries_are_signed_immediately(by: Actor, record: Record, sign: Callable[..., list[Head]]) -> None:
    """A log that has grown by a thousand entries is signed without waiting for an hour to pass."""
    sign()
    record(checkpoints.GROWTH - 1)
    assert sign() == []
    record(1)
    assert [head.tenant_id for head in sign()] == [by.tenant_id]


def test_concurrent_workers_sign_a_head_once(
    installation: Installation, by: Actor, sign: Callable[..., list[Head]]
) -> None:
    """A worker does not sign a head that another worker has already signed."""
    heads = sign()
    with installation.database.writing() as session:
        checkpoints.checkpoint(session, installation.keys, heads)
    assert len(_of(installation, by.tenant_id)) == 1


def test_a_checkpoint_verifies_with_the_public_key(
    installation: Installation, by: Actor, sign: Callable[..., list[Head]]
) -> None:
    """A checkpoint is a JWS with a specific type that covers the tenant, the sequence number and the hash, and verifies
    with the published key."""
    [head] = sign()
    [row] = _of(installation, by.tenant_id)
    public = OKPKey.import_key(installation.keys.signing_key.as_dict(private=False))
    signed = jws.deserialize_compact(row.jws, public, algorithms=["Ed25519"])
    assert signed.headers() == {
        "alg": "Ed25519",
        "typ": "lethe-audit-checkpoint+jws",
        "kid": installation.keys.signing_key.kid,
    }
    said = json.loads(signed.payload)
    assert said.pop("signed_at") == row.signed_at.isoformat()
    assert said == {
        "format": "lethe-audit-checkpoint/1",
        "tenant_id": by.tenant_id,
        "sequence": head.sequence,
        "hash": head.hash,
    }
    assert AUDIT.is_signed(row, KeySet([public]))


def test_a_foreign_signature_is_not_a_checkpoint(
    installation: Installation, by: Actor, sign: Callable[..., list[Head]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A checkpoint is refused if it was signed with another key, has another type or signs a different statement."""
    [head] = sign()
    [row] = _of(installation, by.tenant_id)
    keys = KeySet([installation.keys.signing_key])
    stranger = checkpoints.sign(Keys(tmp_path_factory.mktemp("keys")).create(), head, at=row.signed_at)
    assert not AUDIT.is_signed(stranger, keys)
    certificate = {"alg": "Ed25519", "typ": "lethe-certificate+jws", "kid": installation.keys.signing_key.kid}
    payload = json.dumps(AUDIT.statement(row)).encode()
    for forged in (
        jws.serialize_compact(certificate, payload, installation.keys.signing_key, algorithms=["Ed25519"]),
        "",
        "a.b.c",
        row.jws[:-8] + "AAAAAAAA",
    ):
        assert not AUDIT.is_signed(
            Checkpoint(
                log="audit",
                tenant_id=row.tenant_id,
                sequence=row.sequence,
                hash=row.hash,
                jws=forged,
                signed_at=row.signed_at,
            ),
            keys,
        )
    moved = Checkpoint(
        log="audit",
        tenant_id=row.tenant_id,
        sequence=row.sequence + 1,
        hash=row.hash,
        jws=row.jws,
        signed_at=row.signed_at,
    )
    assert not AUDIT.is_signed(moved, keys)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entries SET object_id = 'thing_x' WHERE sequence = 5",
        "UPDATE audit_entries SET hash = previous_hash WHERE sequence = 5",
        "DELETE FROM audit_entries WHERE sequence = 4",
        "UPDATE audit_entries SET hash = previous_hash WHERE sequence = 2",
        "DELETE FROM audit_entries WHERE sequence = 2",
    ],
)
def test_an_altered_log_is_not_signed(
    installation: Installation,
    other: Actor,
    record: Record,
    sign: Callable[..., list[Head]],
    tamper: Callable[..., None],
    capfd: pytest.CaptureFixture[str],
    statement: str,
) -> None:
    """A log that is inconsistent with its last checkpoint is not signed again, and the worker logs an error."""
    sign()
    record(4, actor=other)
    tamper(statement + f" AND tenant_id = '{other.tenant_id}'")
    assert sign(0.0) == []
    assert [one.sequence for one in _of(installation, other.tenant_id)] == [2]
    assert "audit.log_corrupt" in "".join(capfd.readouterr())
