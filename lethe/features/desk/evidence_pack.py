"""Evidence packs: archives with everything about one deletion request, which anyone can verify offline.

A pack is an uncompressed ZIP file whose members have a fixed order and date, so that its bytes depend only on their
content. `manifest.jws` is signed by the installation and states the SHA-256 of every other member.
"""

import datetime
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jws

from lethe.contract import certificates, problems
from lethe.proof import wellformed
from lethe.verification import chains, proof_files
from lethe.verification.certificates import SIGNATURES, key_set, signed_payload

MANIFEST = "manifest.jws"
KEYS = "public-keys.jwks.json"
CERTIFICATES = "certificates.json"
AUDIT_LOG = "audit-log.json"
TYPE = "lethe-evidence-pack+jws"
"""Media type of a manifest, in its signed header."""
FORMAT = "lethe-evidence-pack/1"
MAX_BYTES = 256 * 1024 * 1024
_CHECKPOINT_TYPE = "lethe-audit-checkpoint+jws"
_HASHED = ("tenant_id", "sequence", "at", "actor", "action", "object_id", "detail")
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPack:
    """Verdict on a pack. `entries` counts the audit entries about the request. `is_chained` is False if the pack only
    proves each entry separately, but not that the entries belong to the log signed by the installation."""

    request_id: str
    made_at: datetime.datetime
    key_id: str
    members: Sequence[str]
    verdicts: Sequence[certificates.CertificateVerdictOut]
    entries: int
    is_chained: bool


def manifest(request_id: str, members: Mapping[str, bytes], *, made_at: datetime.datetime) -> bytes:
    """Return the statement about a pack's other members as canonical JSON, ready to be signed."""
    files = {name: {"bytes": len(content), "sha256": _digest(content)} for name, content in members.items()}
    made = made_at.astimezone(datetime.UTC).isoformat()
    return chains.canonical({"format": FORMAT, "request_id": request_id, "made_at": made, "files": files}).encode()


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return a ZIP file of the members, sorted by name; the same members always give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as file:
        for name in sorted(members):
            member = zipfile.ZipInfo(name, _DATE)
            member.create_system, member.external_attr = 3, 0o100644 << 16
            file.writestr(member, members[name])
    return content.getvalue()


def verify(content: bytes, jwks: dict[str, Any] | None = None) -> VerifiedPack:
    """Verify a pack offline: the manifest's signature, every member's digest, all certificates, and the audit entries.

    Without `jwks`, the keys in the pack are used. This proves that the pack is intact, but not who signed it. Raises
    `CertificateInvalid`, naming the failed check, and whatever `proof_files.verify_file` raises.
    """
    members = _members(content)
    keys = _json(members, KEYS) if jwks is None else jwks
    public_keys = key_set(keys)
    try:
        compact = members[MANIFEST].decode()
        payload = signed_payload(compact, public_keys, kind=TYPE)
        if payload is None:
            raise problems.CertificateInvalid("The manifest was not signed by any of the given keys.")
        stated = wellformed.read(payload)
        files = dict(stated["files"])
        request_id, made_at = str(stated["request_id"]), datetime.datetime.fromisoformat(stated["made_at"])
        is_known = stated["format"] == FORMAT
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise problems.CertificateInvalid("The archive has no manifest of an evidence pack.") from error
    if not is_known:
        raise problems.CertificateInvalid(f"Expected a manifest of the format {FORMAT}.")
    _check_members(members, files)
    verdicts: tuple[certificates.CertificateVerdictOut, ...] = ()
    if CERTIFICATES in members:
        verdicts = proof_files.verify_file(members[CERTIFICATES].decode(), keys).verdicts
    log = _json(members, AUDIT_LOG)
    try:
        is_chained = _check_log(log, public_keys)
        entries = sum(entry["object_id"] == request_id for entry in log["entries"])
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise problems.CertificateInvalid(f"{AUDIT_LOG} is malformed.") from error
    return VerifiedPack(
        request_id=request_id,
        made_at=made_at,
        key_id=str(jws.extract_compact(compact.encode(), registry=SIGNATURES).headers().get("kid")),
        members=sorted(members),
        verdicts=verdicts,
        entries=entries,
        is_chained=is_chained,
    )


def _members(content: bytes) -> dict[str, bytes]:
    """Return a ZIP file's members. Raises `CertificateInvalid` unless `archive` rebuilds the same bytes from them."""
    if len(content) > MAX_BYTES:
        raise problems.CertificateInvalid("The file is larger than any evidence pack.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            infos = file.infolist()
            if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                raise problems.CertificateInvalid("The archive is compressed, which an evidence pack is not.")
            members = {info.filename: file.read(info) for info in infos}
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, EOFError) as error:
        raise problems.CertificateInvalid("The archive is damaged: a member is not what was stored.") from error
    if archive(members) != content:
        raise problems.CertificateInvalid("The archive was changed: its bytes do not follow from its members.")
    return members


def _check_members(members: Mapping[str, bytes], files: Mapping[str, Any]) -> None:
    """Check that the manifest lists exactly the other members and their digests."""
    for name in sorted(members.keys() ^ {*files, MANIFEST}):
        fault = "is missing" if name in files else "is not in the manifest"
        raise problems.CertificateInvalid(f"The member {name} {fault}.")
    for name, stated in files.items():
        if stated != {"bytes": len(members[name]), "sha256": _digest(members[name])}:
            raise problems.CertificateInvalid(f"The member {name} is not what was signed.")


def _check_log(log: dict[str, Any], public_keys: Any) -> bool:
    """Check the hash of each audit entry, and return True if a hash chain links them to a signed checkpoint."""
    previous: dict[str, Any] | None = None
    for entry in log["entries"]:
        body = chains.canonical({name: entry[name] for name in _HASHED})
        if entry["hash"] != chains.link_hash(entry["previous_hash"], body):
            raise problems.CertificateInvalid(f"Audit entry {entry['sequence']} is not what was hashed.")
        if log["linked"] and previous is not None:
            follows = entry["sequence"] == previous["sequence"] + 1 and entry["previous_hash"] == previous["hash"]
            if not follows or entry["tenant_id"] != previous["tenant_id"]:
                raise problems.CertificateInvalid(f"Audit entry {entry['sequence']} does not follow its predecessor.")
        previous = entry
    if not log["linked"]:
        return False
    payload = signed_payload(log["checkpoint"], public_keys, kind=_CHECKPOINT_TYPE)
    if payload is None:
        raise problems.CertificateInvalid("The audit checkpoint was not signed by any of the given keys.")
    head = wellformed.read(payload)
    if previous is None or any(head[name] != previous[name] for name in ("tenant_id", "sequence", "hash")):
        raise problems.CertificateInvalid("The last audit entry is not the one that the checkpoint signs.")
    return True


def _json(members: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        return dict(json.loads(members[name]))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise problems.CertificateInvalid(f"The archive has no {name}, or it is malformed.") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
