"""Verification of an exported ledger by its recipient. The file consists of JSON lines written by the gateway:

{"format": "lethe-ledger-export/1", "tenant_id": ..., "exported_at": ...}
{"link": {...}}      the chain over all models, in order
{"entry": {...}}     the entries of each model, in order
{"version": {...}}   the existing versions
{"head": "..."}      the signature over the last link, a compact JWS; null if there is no link
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.contract.problems import LedgerCorrupt
from lethe.proof import wellformed
from lethe.verification import certificates, chains, ledgers

FORMAT = "lethe-ledger-export/1"
LINK = ("sequence", "body", "previous_hash", "hash")
ENTRY = ("model_id", *LINK)
VERSION = ("model_id", "number", "weights_sha256")
"""Fields of each kind of line in an export."""


def verify_ledger(file: Path, jwks: dict[str, Any], *, kept: str | None = None) -> ledgers.OfTenant:
    """Verify that an export is consistent and agrees with the signed head that it contains and with a head `kept`
    elsewhere, given as a compact JWS or as JSON with a `jws`.

    Raises `LedgerCorrupt`, naming the failed check; `LedgerRestored` if the ledger states that it was restored to a
    time before the kept head; and `CertificateInvalid` if `jwks` contains no keys.
    """
    public_keys = certificates.key_set(jwks)
    kept_head = chains.LEDGER.kept(kept) if kept is not None else None
    content = _read(file)
    if kept_head is not None and kept_head.tenant_id != content.tenant_id:
        raise LedgerCorrupt(
            f"The head is about the ledger of tenant {kept_head.tenant_id}, the export of {content.tenant_id}."
        )
    report = ledgers.verify_tenant(
        content.tenant_id,
        entries=content.entries,
        versions=content.versions,
        links=content.links,
        signed=[content.head] if content.head else [],
        certificates=[],
        public_keys=public_keys,
    )
    if report.signed != report.links:
        raise LedgerCorrupt(f"The export has {report.links} links, of which nothing is signed after {report.signed}.")
    if kept_head is not None:
        ledgers.require_kept(report, kept_head, public_keys)
    return report


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
    """Parsed content of an export."""

    def __init__(self, tenant_id: str) -> None:
        self.tenant_id = tenant_id
        self.links: list[_Link] = []
        self.entries: list[_Entry] = []
        self.versions: list[_Version] = []
        self.head: chains.KeptHead | None = None

    def add(self, kind: str, fields: Any) -> None:
        match kind:
            case "link":
                self.links.append(_Link(tenant_id=self.tenant_id, **_typed(fields, LINK)))
            case "entry":
                self.entries.append(_Entry(**_typed(fields, ENTRY)))
            case "version":
                self.versions.append(_Version(**_typed(fields, VERSION)))
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
                ((kind, value),) = wellformed.read(line).items()
                if kind == "head":
                    ended = True
                    content.head = chains.LEDGER.kept(value) if value is not None else None
                else:
                    content.add(kind, value)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerCorrupt(f"{file}, line {number}: it is none of an export of a ledger.") from error
    if not ended:
        raise LedgerCorrupt(f"{file} was cut off: the signed head, which comes last, is not there.")
    return content


def _typed(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    if fields.keys() != set(names):
        raise ValueError("It has other fields.")
    for name, value in fields.items():
        if type(value) is not (int if name in ("sequence", "number") else str):
            raise ValueError("A field is of another type.")
    return fields
