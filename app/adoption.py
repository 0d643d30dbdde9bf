"""Adoption of a database of the first layout, which does not say whose it is: what is stored is tried with the keys.

Looked at before anything is changed. `subject.key`: what a request is found by, and the tombstones; `digest.key`: the
digests of datasets; `signing.jwk`: certificates and checkpoints; `kek` and the vault: wrapped keys, and what callers
wrote. Nothing stored tells of `webhook.key`, or of a key under which nothing was stored yet: these are taken as found.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import sqlalchemy as sa

from app import signing
from app.errors import SignatureUnverifiable
from app.keys import KeyEncryptionFile, KeyEncryptionKeyLost, Keys, Wrapping
from lethe.contract.problems import InstallationMismatch
from lethe.verification.signatures import signed_payload

_SOME = 20
_BLOCK_ROWS = 4096
_WRAPPED = 76
"""Bytes of a wrapped key."""


def check(
    engine: sa.Engine,
    keys: Keys,
    key_encryption: KeyEncryptionFile,
    *,
    open_sealed: Callable[[bytes], bytes | None],
    wrapped_keys: Sequence[Path],
    pages: Sequence[Path],
    datasets: Path,
    tombstones: Path,
) -> None:
    """`wrapped_keys`: the files of one each; `pages`: those of the vault; `datasets`: the folder of their rows.

    Raises `InstallationMismatch`, naming the key that is not the database's; `OSError`.
    """
    with engine.connect().execution_options(lethe_read_only=True) as connection:
        paths = keys.paths()
        if not _unwrap(key_encryption, wrapped_keys, pages):
            raise _refused(key_encryption.paths()[0])
        if not _opens(connection, keys, open_sealed):
            raise _refused(paths["subject.key"])
        if not _chained(tombstones, keys):
            raise _refused(paths["subject.key"])
        if not _digests_match(connection, keys, datasets):
            raise _refused(paths["digest.key"])
        if not _verify(connection, keys):
            raise _refused(paths["signing.jwk"])


def _refused(path: Path) -> InstallationMismatch:
    return InstallationMismatch(
        f"{path} is not the key with which what is in this database was stored; put that back, beside the data folder "
        "that belongs to it. Nothing was changed."
    )


def _unwrap(key_encryption: KeyEncryptionFile, wrapped_keys: Sequence[Path], pages: Sequence[Path]) -> bool:
    """Return True if what is wrapped unwraps."""
    held = key_encryption.held()

    def tried() -> Iterator[bool]:
        for path in wrapped_keys:
            yield from _unwraps(held, path.read_bytes(), path.stem)
        for page in pages:
            for number, line in enumerate(_lines(page.read_bytes())):
                yield from _unwraps(held, line, page.stem + number.to_bytes(2, "big").hex())

    return _holds(tried())


def _unwraps(held: Wrapping, wrapped: bytes, context: str) -> Iterator[bool]:
    """Nothing is said of what a crash cut short, and of a key that was destroyed."""
    try:
        held.unwrap(wrapped, context)
    except KeyEncryptionKeyLost:
        yield False
    except ValueError:
        return
    else:
        yield True


def _lines(page: bytes) -> list[bytes]:
    return [page[start : start + _WRAPPED] for start in range(0, len(page), _WRAPPED)]


def _holds(tried: Iterable[bool]) -> bool:
    """Return True if one thing that was stored with the key shows it, or there is none. What is damaged is told
    elsewhere."""
    found = None
    for holds in tried:
        if holds:
            return True
        found = False
    return found is None


def _opens(connection: sa.Connection, keys: Keys, open_sealed: Callable[[bytes], bytes | None]) -> bool:
    """Return True if what callers wrote opens, and is found by the reference that was stored of it."""
    query = sa.text(
        "SELECT particulars, external_ref FROM deletion_requests WHERE particulars IS NOT NULL"
        " ORDER BY created_at DESC LIMIT :some"
    )
    found = connection.execute(query, {"some": _SOME}).all()

    def tried() -> Iterator[bool]:
        for particulars, external_ref in found:
            try:
                content = open_sealed(particulars)
            except (FileNotFoundError, ValueError):  # another data folder's, or damaged
                yield False
                continue
            external_id = json.loads(content).get("external_id") if content is not None else None
            if external_ref is not None and external_id is not None:
                yield keys.reference(external_id.encode()) == external_ref

    return _holds(tried())


def _chained(tombstones: Path, keys: Keys) -> bool:
    """Return True if the first tombstone carries its keyed hash."""
    try:
        with tombstones.open("rb") as file:
            first = file.readline()
    except FileNotFoundError:
        return True
    if not first.endswith(b"\n"):
        return True
    try:
        body = json.loads(first)
        own = body.pop("hash")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return bool(own == keys.fingerprint(b"tombstone", text))


def _digests_match(connection: sa.Connection, keys: Keys, datasets: Path) -> bool:
    """Return True if the digests of datasets follow from those of their blocks, as far as no run was editing them."""
    editing = """EXISTS (SELECT 1 FROM erasures WHERE erasures.dataset_id = datasets.id
                         AND num_records IS NOT NULL AND nulled_at IS NULL)
        OR EXISTS (SELECT 1 FROM additions WHERE additions.dataset_id = datasets.id
                   AND additions.revision IS NOT NULL AND additions.status = 'pending')"""
    query = sa.text(f"SELECT id, digest FROM datasets WHERE NOT ({editing}) ORDER BY id LIMIT :some")  # noqa: S608
    found = connection.execute(query, {"some": _SOME}).all()

    def tried() -> Iterator[bool]:
        for dataset_id, recorded in found:
            try:
                shape = json.loads((datasets / dataset_id / "shape.json").read_bytes())
                blocks = (datasets / dataset_id / "block_digests.bin").read_bytes()
            except (FileNotFoundError, ValueError):  # in a bucket, or damaged: a reader of the rows says so
                continue
            digest = hashlib.blake2b(key=keys.digest_key, digest_size=32, person=b"lethe.rows")
            digest.update(f"{shape['num_slots']} {shape['num_columns']} {_BLOCK_ROWS}\n".encode() + blocks)
            yield digest.hexdigest() == recorded

    return _holds(tried())


def _verify(connection: sa.Connection, keys: Keys) -> bool:
    """Return True if the private key is the public one's, which signed what was signed last."""
    try:
        signing.sign(keys, b"lethe", kind="lethe-probe")
    except SignatureUnverifiable:
        return False
    public = signing.published(keys)
    newest: list[str] = []
    for table, column in (("certificates", "issued_at"), ("audit_checkpoints", "signed_at")):
        query = sa.text(f"SELECT jws FROM {table} ORDER BY {column} DESC LIMIT :some")  # noqa: S608  two constants
        newest += connection.scalars(query, {"some": _SOME})
    return _holds(signed_payload(one, public) is not None for one in newest)
