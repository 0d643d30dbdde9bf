"""Export of a tenant's ledger as JSON lines; the last line is its signed head."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app.accounting import repository as accounting_repository
from app.audit import checkpoints, repository as chains
from app.db import now, tables
from app.features.custody import repository
from lethe.contract.problems import LedgerCorrupt
from lethe.verification.exports import ENTRY, FORMAT, LINK, VERSION

_PAGE = 500


def head(session: Session, public_keys: KeySet, *, tenant_id: str) -> tables.Checkpoint | None:
    """Return a tenant's signed ledger head, which contains the last link's hash; None if nothing has been published.

    Raises `LedgerCorrupt` if the last link is not signed. A worker will sign the link soon unless it was tampered with.
    """
    last = chains.last_row(session, checkpoints.LEDGER, tenant_id=tenant_id)
    signed = chains.checkpoints(session, checkpoints.LEDGER, tenant_id=tenant_id, limit=1)
    if last is None and not signed:
        return None
    if not signed or last is None or (signed[0].sequence, signed[0].hash) != (last.sequence, last.hash):
        raise LedgerCorrupt(
            "Tenant {tenant_id}: the last link of the ledger is not what was signed, or not signed yet. A worker "
            "signs it within a minute; if it does not, run `lethe ledger verify`.",
            tenant_id=tenant_id,
        )
    if not checkpoints.LEDGER.is_signed(signed[0], public_keys):
        raise LedgerCorrupt("Tenant {tenant_id}: what was signed about the ledger was changed.", tenant_id=tenant_id)
    return signed[0]


def written(
    reading: Callable[[], AbstractContextManager[Session]], public_keys: KeySet, *, tenant_id: str
) -> Iterator[bytes]:
    """Return an export's lines. Raises `LedgerCorrupt` before the first line if the last link is not the signed one."""
    with reading() as session:
        signed_head = head(session, public_keys, tenant_id=tenant_id)
        lengths = repository.ledger_lengths(session, tenant_id=tenant_id) if signed_head else {}
        header = {"format": FORMAT, "tenant_id": tenant_id, "exported_at": now(session).isoformat()}
    return _lines(reading, header, signed_head, lengths)


def _lines(
    reading: Callable[[], AbstractContextManager[Session]],
    header: dict[str, str],
    head: tables.Checkpoint | None,
    lengths: dict[str, int],
) -> Iterator[bytes]:
    yield _line(header)
    for first in range(1, (head.sequence if head else 0) + 1, _PAGE):
        with reading() as session:
            links = repository.links(session, tenant_id=header["tenant_id"], since=first, limit=_PAGE)
        for link in links:
            if head is not None and link.sequence <= head.sequence:
                yield _line({"link": _fields(link, LINK)})
    for model_id, length in lengths.items():
        for after in range(0, length, _PAGE):
            limit = min(_PAGE, length - after)
            with reading() as session:
                entries = accounting_repository.entries(session, model_id=model_id, after=after, limit=limit)
            yield from (_line({"entry": _fields(entry, ENTRY)}) for entry in entries)
    for model_id, length in lengths.items():
        for after in range(0, length, _PAGE):
            with reading() as session:
                versions = repository.versions_between(
                    session, model_id=model_id, after=after, until=min(after + _PAGE, length)
                )
            yield from (_line({"version": _fields(version, VERSION)}) for version in versions)
    yield _line({"head": head.jws if head else None})


def _fields(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
