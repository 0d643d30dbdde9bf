"""A tenant's ledger as a file that a stranger verifies, without the service and without a database
(`lethe.verification.exports`).

Nothing of what is written is ever changed, so a page is read at a time, up to where the ledger stood at the beginning.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app.accounting import anchors, repository
from app.audit import repository as chains
from app.audit.chains import LEDGER
from app.db import now
from app.db.tables import Checkpoint
from lethe.verification.exports import ENTRY, FORMAT, LINK, VERSION

_PAGE = 500


def written(
    reading: Callable[[], AbstractContextManager[Session]], public_keys: KeySet, *, tenant_id: str
) -> Iterator[bytes]:
    """The lines of an export. Raises `LedgerCorrupt` at once where the head is not what was signed."""
    with reading() as session:
        head = anchors.head(session, public_keys, tenant_id=tenant_id)
        lengths = repository.ledger_lengths(session, tenant_id=tenant_id) if head else {}
        header = {"format": FORMAT, "tenant_id": tenant_id, "exported_at": now(session).isoformat()}
    return _lines(reading, header, head, lengths)


def _lines(
    reading: Callable[[], AbstractContextManager[Session]],
    header: dict[str, str],
    head: Checkpoint | None,
    lengths: dict[str, int],
) -> Iterator[bytes]:
    yield _line(header)
    for first in range(1, (head.sequence if head else 0) + 1, _PAGE):
        with reading() as session:
            links = chains.page_of(session, LEDGER, tenant_id=header["tenant_id"], since=first, limit=_PAGE)
        for link in links:
            if head is not None and link.sequence <= head.sequence:
                yield _line({"link": _fields(link, LINK)})
    for model_id, length in lengths.items():
        for after in range(0, length, _PAGE):
            limit = min(_PAGE, length - after)
            with reading() as session:
                entries = repository.entries(session, model_id=model_id, after=after, limit=limit)
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
