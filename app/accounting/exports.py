"""A tenant's ledger as a file that a stranger verifies, without the service and without a database: lines of JSON.

    {"format": "lethe-ledger-export/1", "tenant_id": ..., "exported_at": ...}
    {"link": {...}}      the chain over all models, in its order
    {"entry": {...}}     the entries of each model, in their order
    {"version": {...}}   the versions that there are
    {"head": "..."}      what was signed about the last link: a compact JWS; null where there is none

Nothing of what is written is ever changed, so a page is read at a time, up to where the ledger stood at the beginning.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app.accounting import anchors, earlier, repository, verify
from app.accounting.verify import OfTenant
from app.audit import checkpoints
from app.audit import repository as chains
from app.audit.chains import LEDGER
from app.db import now
from app.db.tables import Checkpoint, LedgerEntry, LedgerLink, Version
from lethe.contract.problems import LedgerCorrupt
from lethe.proof import wellformed

FORMAT = "lethe-ledger-export/1"
_PAGE = 500
_LINK = ("sequence", "body", "previous_hash", "hash")
_ENTRY = ("model_id", *_LINK)
_VERSION = ("model_id", "number", "weights_sha256")


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
                yield _line({"link": _fields(link, _LINK)})
    for model_id, length in lengths.items():
        for after in range(0, length, _PAGE):
            limit = min(_PAGE, length - after)
            with reading() as session:
                entries = repository.entries(session, model_id=model_id, after=after, limit=limit)
            yield from (_line({"entry": _fields(entry, _ENTRY)}) for entry in entries)
    for model_id, length in lengths.items():
        for after in range(0, length, _PAGE):
            with reading() as session:
                versions = repository.versions_between(
                    session, model_id=model_id, after=after, until=min(after + _PAGE, length)
                )
            yield from (_line({"version": _fields(version, _VERSION)}) for version in versions)
    yield _line({"head": head.jws if head else None})


def verified(path: Path, public_keys: KeySet, *, kept: Checkpoint | None = None) -> OfTenant:
    """Verify an export by itself and against the head that it carries, and one that was `kept` elsewhere.

    Raises `LedgerCorrupt`, `LedgerRestored`.
    """
    content = _read(path)
    tenant_id = content.tenant_id
    if kept is not None and kept.tenant_id != tenant_id:
        raise LedgerCorrupt(f"The head is about the ledger of tenant {kept.tenant_id}, the export of {tenant_id}.")
    found = verify.verify_tenant(
        tenant_id,
        entries=content.entries,
        versions=content.versions,
        links=content.links,
        signed=[content.head] if content.head else [],
        certificates=[],
        public_keys=public_keys,
        vouched=lambda: earlier.vouched(content.links, public_keys),
    )
    if found.signed != found.links:
        raise LedgerCorrupt(f"The export has {found.links} links, of which nothing is signed after {found.signed}.")
    if kept is not None:
        verify.require_kept(found, kept, public_keys)
    return found


class _Content:
    """The content of an export."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id = tenant_id
        self.links: list[LedgerLink] = []
        self.entries: list[LedgerEntry] = []
        self.versions: list[Version] = []
        self.head: Checkpoint | None = None

    def add(self, kind: str, said: Any) -> None:
        match kind:
            case "link":
                self.links.append(LedgerLink(tenant_id=self.tenant_id, **_typed(said, _LINK)))
            case "entry":
                self.entries.append(LedgerEntry(**_typed(said, _ENTRY)))
            case "version":
                self.versions.append(Version(**_typed(said, _VERSION)))
            case _:
                raise ValueError("There is no such thing in an export.")


def _read(path: Path) -> _Content:
    number = 0
    try:
        with path.open("rb") as file:
            number, header = 1, wellformed.read(file.readline())
            if header["format"] != FORMAT or header.keys() != {"format", "tenant_id", "exported_at"}:
                raise ValueError("It is something else.")
            content = _Content(str(header["tenant_id"]))
            ended = False
            for line in file:
                number += 1
                if ended:
                    raise ValueError("Something comes after the head.")
                ((kind, said),) = wellformed.read(line).items()
                if kind == "head":
                    ended = True
                    content.head = checkpoints.kept(said, LEDGER) if said is not None else None
                else:
                    content.add(kind, said)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerCorrupt(f"{path}, line {number}: it is none of an export of a ledger.") from error
    if not ended:
        raise LedgerCorrupt(f"{path} was cut off: the signed head, which comes last, is not there.")
    return content


def _typed(said: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    if said.keys() != set(names):
        raise ValueError("It has other fields.")
    for name, value in said.items():
        if type(value) is not (int if name in ("sequence", "number") else str):
            raise ValueError("A field is of another type.")
    return said


def _fields(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
