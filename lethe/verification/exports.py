"""An exported ledger, verified by its reader: lines of JSON, as the gateway writes them.

{"format": "lethe-ledger-export/1", "tenant_id": ..., "exported_at": ...}
{"link": {...}}      the chain over all models, in its order
{"entry": {...}}     the entries of each model, in their order
{"version": {...}}   the versions that there are
{"head": "..."}      what was signed about the last link: a compact JWS; null where there is none
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.contract.problems import LedgerCorrupt
from lethe.proof import wellformed
from lethe.verification import ledgers, upgrades
from lethe.verification.chains import LEDGER, KeptHead
from lethe.verification.ledgers import OfTenant
from lethe.verification.signatures import key_set

FORMAT = "lethe-ledger-export/1"
LINK = ("sequence", "body", "previous_hash", "hash")
ENTRY = ("model_id", *LINK)
VERSION = ("model_id", "number", "weights_sha256")
"""The fields of each kind of line."""


def verify_ledger(file: Path, jwks: dict[str, Any], *, kept: str | None = None) -> OfTenant:
    """Verify an export by itself and against the signed head that it carries, and one that was `kept` elsewhere: a
    compact JWS, or JSON with a `jws`.

    Raises `LedgerCorrupt`, naming what does not hold; `LedgerRestored` where the ledger says that it was restored to
    before the head that was kept; `CertificateInvalid` where `jwks` holds no keys.
    """
    public_keys = key_set(jwks)
    elsewhere = LEDGER.kept(kept) if kept is not None else None
    content = _read(file)
    if elsewhere is not None and elsewhere.tenant_id != content.tenant_id:
        raise LedgerCorrupt(
            f"The head is about the ledger of tenant {elsewhere.tenant_id}, the export of {content.tenant_id}."
        )
    found = ledgers.verify_tenant(
        content.tenant_id,
        entries=content.entries,
        versions=content.versions,
        links=content.links,
        signed=[content.head] if content.head else [],
        certificates=[],
        public_keys=public_keys,
        vouched=lambda: upgrades.vouched(content.links, public_keys),
    )
    if found.signed != found.links:
        raise LedgerCorrupt(f"The export has {found.links} links, of which nothing is signed after {found.signed}.")
    if elsewhere is not None:
        ledgers.require_kept(found, elsewhere, public_keys)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    tenant_id: str
    sequence: int
    body: str
    previous_hash: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    model_id: str
    sequence: int
    body: str
    previous_hash: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    model_id: str
    number: int
    weights_sha256: str


class _Content:
    """The content of an export."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id = tenant_id
        self.links: list[_Link] = []
        self.entries: list[_Entry] = []
        self.versions: list[_Version] = []
        self.head: KeptHead | None = None

    def add(self, kind: str, said: Any) -> None:
        match kind:
            case "link":
                self.links.append(_Link(tenant_id=self.tenant_id, **_typed(said, LINK)))
            case "entry":
                self.entries.append(_Entry(**_typed(said, ENTRY)))
            case "version":
                self.versions.append(_Version(**_typed(said, VERSION)))
            case _:
                raise ValueError("There is no such thing in an export.")


def _read(file: Path) -> _Content:
    number = 0
    try:
        with file.open("rb") as lines:
            number, header = 1, wellformed.read(lines.readline())
            if header["format"] != FORMAT or header.keys() != {"format", "tenant_id", "exported_at"}:
                raise ValueError("It is something else.")
            content = _Content(str(header["tenant_id"]))
            ended = False
            for line in lines:
                number += 1
                if ended:
                    raise ValueError("Something comes after the head.")
                ((kind, said),) = wellformed.read(line).items()
                if kind == "head":
                    ended = True
                    content.head = LEDGER.kept(said) if said is not None else None
                else:
                    content.add(kind, said)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerCorrupt(f"{file}, line {number}: it is none of an export of a ledger.") from error
    if not ended:
        raise LedgerCorrupt(f"{file} was cut off: the signed head, which comes last, is not there.")
    return content


def _typed(said: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    if said.keys() != set(names):
        raise ValueError("It has other fields.")
    for name, value in said.items():
        if type(value) is not (int if name in ("sequence", "number") else str):
            raise ValueError("A field is of another type.")
    return said
