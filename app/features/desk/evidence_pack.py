"""Evidence pack of a request: its reply, certificates, keys, history and audit entries, as a ZIP file and as a PDF.

`lethe.features.desk.evidence_pack` verifies the ZIP file. Making a pack signs a checkpoint of the audit log, so that it
covers even the last entry about the request. A pack depends only on the state of the request and the log.
"""

import contextlib
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy.orm import Session

from app import signing
from app.access import service as access
from app.audit import checkpoints, repository, service as audit
from app.db.tables import AuditEntry
from app.features.custody.repository import audit_entries
from app.features.desk import languages, replies
from app.features.desk.pages.evidence import certificate_in_words
from app.keys import Keys
from lethe.contract import certificates, deletion_requests
from lethe.features.custody.contract import AuditEntryOut
from lethe.features.desk import contract, evidence_pack as packs

MAX_LINKED_ENTRIES = 20_000
"""Maximum number of audit entries in a pack. If more lie between the first and last entry about a request, the pack
contains only the entries about the request itself."""

_MAX_ENTRIES = 1_000_000
"""Maximum number of audit entries about one request; no request has that many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPart:
    """Audit entries of a pack. If `linked`, they have no gaps and end at `checkpoint`. `names` maps ids to names."""

    entries: Sequence[AuditEntryOut]
    linked: bool
    checkpoint: str | None
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackContents:
    """Contents of an evidence pack, as of `made_at`."""

    request: deletion_requests.DeletionRequestOut
    events: Sequence[deletion_requests.RequestEventOut]
    proof: certificates.CertificatesOut
    reply: replies.Reply
    log: AuditPart
    keys: Mapping[str, Any]
    made_at: datetime.datetime


def record(session: Session, keys: Keys, *, request_id: str, tenant_id: str, kind: str) -> None:
    """Record that the session's actor is downloading a pack, and sign the audit log up to this entry."""
    audit.record(session, "deletion_request.evidence_packed", request_id, format=kind)
    checkpoints.checkpoint_now(session, keys, checkpoints.AUDIT, tenant_id=tenant_id)


def audit_part(session: Session, *, request_id: str, tenant_id: str) -> AuditPart:
    """Return the audit entries about a request, if possible as part of a gapless sequence up to the last checkpoint."""
    found = audit_entries(session, tenant_id=tenant_id, before=None, limit=_MAX_ENTRIES, object_id=request_id)
    about = found[::-1]
    last = next(iter(repository.checkpoints(session, checkpoints.AUDIT, tenant_id=tenant_id, limit=1)), None)
    rows: Sequence[AuditEntry] = about
    is_linked = bool(last and about and about[-1].sequence <= last.sequence < about[0].sequence + MAX_LINKED_ENTRIES)
    if is_linked and last:
        since = repository.rows_of(session, checkpoints.AUDIT, tenant_id=tenant_id, since=about[0].sequence)
        rows = [row for row in since if row.sequence <= last.sequence]
    return AuditPart(
        entries=[AuditEntryOut.of(row, at=row.at.astimezone(datetime.UTC).isoformat()) for row in rows],
        linked=is_linked,
        checkpoint=last.jws if is_linked and last else None,
        names=access.names_of(session, {row.actor for row in about}),
    )


def as_zip(evidence: PackContents, keys: Keys, *, folder: Path) -> bytes:
    """Return a pack as a ZIP archive with a signed manifest. The PDF's font is written to `folder`."""
    members = {
        packs.KEYS: _json(evidence.keys),
        packs.AUDIT_LOG: _json(
            {
                "linked": evidence.log.linked,
                "checkpoint": evidence.log.checkpoint,
                "entries": [entry.model_dump(mode="json") for entry in evidence.log.entries],
            }
        ),
        "history.json": _json([event.model_dump(mode="json") for event in evidence.events]),
        "reply.txt": replies.as_text(evidence.reply).encode(),
        "request.json": _json(evidence.request),
    }
    if evidence.proof.certificates or evidence.proof.nothing_held:
        members[packs.CERTIFICATES] = _json(evidence.proof)
        members[f"{packs.CERTIFICATES}.jwks.json"] = members[packs.KEYS]
    # Without a PDF the reply is in the archive as text.
    with contextlib.suppress(contract.ReplyUnprintable):
        members["evidence.pdf"] = as_pdf(evidence, folder=folder)
    members["README.txt"] = _readme(evidence, has_pdf="evidence.pdf" in members).encode()
    statement = packs.manifest(evidence.request.id, members, made_at=evidence.made_at)
    return packs.archive(members | {packs.MANIFEST: signing.sign(keys, statement, kind=packs.TYPE).encode()})


def as_pdf(evidence: PackContents, *, folder: Path) -> bytes:
    """Return a pack's human-readable part as a PDF. Raises `ReplyUnprintable`."""
    # The libraries of PDF take longer to import than the gateway's other parts.
    from app.features.desk import reply_pdf

    with languages.speaking(languages.ENGLISH):
        # The font lacks the sign ≤.
        sections = {name: [line.replace("≤", "<=") for line in lines] for name, lines in _sections(evidence)}
    reply_pdf.require_printable(
        [*reply_pdf.lines_of(evidence.reply), *sections, *(x for y in sections.values() for x in y)]
    )
    title = f"Evidence: {evidence.reply.subject}"
    with reply_pdf.opened_for(evidence.reply, folder, title=title) as document:
        reply_pdf.write_reply(document, evidence.reply)
        document.add_page()
        for heading, lines in sections.items():
            document.write_heading(heading)
            for line in lines:
                document.write_lines(line, size=9)
        return bytes(document.output())


def _sections(evidence: PackContents) -> Iterator[tuple[str, list[str]]]:
    """Yield the heading and paragraphs of each section that follows the reply in a pack."""
    request, log = evidence.request, evidence.log
    facts = {
        "Request": request.id,
        "Case number": request.external_id or "none",
        "Regulation": request.regulation,
        "Status": request.status + (f", outcome {request.outcome}" if request.outcome else ""),
        "Received": _time(request.submitted_at),
        "Entered": _time(request.created_at),
        "Due": _time(request.clock.deadline),
        "Completed": _time(request.completed_at) if request.completed_at else "no",
        "This pack was made": _time(evidence.made_at),
    }
    yield "PackContents about the request", [f"{name}: {value}" for name, value in facts.items()]
    yield (
        "History",
        [
            f"{_time(event.at)}: {event.kind.replace('_', ' ')}, by {event.actor_name or event.actor}"
            + (f". {event.detail}" if event.detail else "")
            for event in evidence.events
        ],
    )
    for certificate in evidence.proof.certificates:
        words = certificate_in_words(certificate)
        code = replies.code_of(certificate.id, certificate.jws)
        proves = ["It proves:", *(f"• {line}" for line in words.proves)]
        does_not = ["It does not prove:", *(f"• {line}" for line in words.does_not)]
        yield f"Certificate {certificate.id}", [f"Code: {code}", str(words.headline), *proves, *does_not]
    if evidence.proof.nothing_held:
        looked = evidence.proof.nothing_held.statement["looked"]["at"]
        yield "Signed statement", [f"No record matched the request when the datasets were searched, at {looked}."]
    about = [entry for entry in log.entries if entry.object_id == request.id]
    proof = "They are linked up to a signed checkpoint." if log.linked else _UNLINKED
    yield (
        "Audit entries",
        [
            proof,
            *(
                f"{entry.sequence}. {entry.at}: {entry.action}, by {log.names.get(entry.actor, entry.actor)}"
                f"\n{entry.hash}"
                for entry in about
            ),
        ],
    )
    yield "Public keys", [f"{key['kid']}: {key['x']} ({key['crv']})" for key in evidence.keys["keys"]]


_UNLINKED = (
    "Each entry proves its own content; too many other entries lie between them to be in this pack. Compare the hashes "
    "with the whole audit log."
)


def _readme(evidence: PackContents, *, has_pdf: bool) -> str:
    request = evidence.request
    has_certificates = bool(evidence.proof.certificates or evidence.proof.nothing_held)
    files = {
        "evidence.pdf": "everything to read: the letter, the history, the certificates in words, the audit entries"
        if has_pdf
        else None,
        "reply.txt": "the reply to the person, without an address: the service stores none",
        "request.json": "the request, as the API returns it",
        "history.json": "its events, as the API returns them",
        packs.CERTIFICATES: "the signed certificates or statement" if has_certificates else None,
        packs.AUDIT_LOG: "the audit entries about the request"
        + (", and those between them up to a signed checkpoint, which the chain of hashes needs" * evidence.log.linked),
        packs.KEYS: "the public keys of the installation",
        packs.MANIFEST: "the signed list of all other files with their SHA-256",
    }
    listed = "\n".join(f"  {name:<22}{about}" for name, about in files.items() if about)
    verify_certificates = (
        f"\nThe certificates alone, once unpacked:\n\n  lethe certificate verify {packs.CERTIFICATES}\n"
    )
    return (
        f"""PackContents about the deletion request {request.id}
Made {_time(evidence.made_at)}

What is in it:

{listed}

To verify all of it, offline:

  lethe request verify-evidence-pack PACK.zip --jwks KEYS

KEYS are the public keys of the installation, which you get from it at /.well-known/jwks.json and keep. Without --jwks
the keys in the archive are used: that proves that nothing was changed since it was signed, but not who signed it.
{verify_certificates if has_certificates else ""}
The installation proves that these statements are its own and that nobody changed them since. It cannot prove by itself
that its audit log is the only one: compare with a checkpoint that was kept elsewhere (lethe audit verify).
{"" if evidence.log.linked else chr(10) + _UNLINKED + chr(10)}
Notes and files attached to the request are not in it.
{"" if has_pdf else "The letter has characters that the font lacks, so there is no evidence.pdf."}
""".rstrip(" \n")
        + "\n"
    )


def _time(at: datetime.datetime) -> str:
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _json(document: Any) -> bytes:
    plain = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return json.dumps(plain, indent=1, sort_keys=True).encode() + b"\n"
