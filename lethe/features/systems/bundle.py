"""Bundle for a deletion request: every system with its grade and evidence, and the weakest grade as the headline.

The same code composes and checks the statement: `check` recomputes each grade from its evidence and the headline from
the grades, so that a bundle cannot state more than it shows. Other features register kinds of evidence in the
`EVIDENCE` tuple of their `evidence` module.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from lethe import sockets
from lethe.contract.problems import CertificateInvalid
from lethe.features.systems import acknowledgements
from lethe.features.systems.contract import STRENGTH, Grade
from lethe.features.systems.sentences import HEADINGS, LIMITS, NO_JOINT, Remark, headline, texts
from lethe.proof import wellformed
from lethe.proof.errors import PreconditionError, PrivacyError
from lethe.verification import proof_files
from lethe.verification.certificates import key_set, signed_payload

FORMAT = "lethe-bundle/1"
TYPE = "lethe-bundle+jws"
"""Media type of a bundle, in its signed header."""
_PARTS = {"format", "issued_at", "request", "asked", "lines", "joint", "headline", "headings", "limits"}
_LINE = {"system", "grade", "waiting", "opened_at", "ended_at", "map", "numbers", "method", "limits", "evidence"}
_SYSTEM = {"id", "kind", "name"}
_REQUEST = {"id", "submitted_at", "status", "outcome", "completed_at"}
Line = Mapping[str, Any]
EvidenceGrade = Callable[[Line, str, Mapping[str, dict[str, Any]]], Grade]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceKind:
    """Kind of evidence that a line can have. `grade` checks the evidence and returns the grade that it supports, given
    the line, the request id and the bundle's certificate statements keyed by JWS; it raises `PreconditionError`.
    `method` and `limits` are the texts of every line with such evidence. `remark` returns what checked lines with such
    evidence add to the headline."""

    type: str
    grade: EvidenceGrade
    method: str
    limits: tuple[str, ...]
    remark: Callable[[Sequence[Line]], Remark] | None = None

    @classmethod
    def worded(
        cls, package: str, name: str, grade: EvidenceGrade, remark: Callable[[Sequence[Line]], Remark] | None = None
    ) -> Self:
        """Return a kind whose method and limits are listed under `evidence` in a package's `sentences.toml`."""
        wording = texts(package)["evidence"][name]
        return cls(type=name, grade=grade, method=wording["method"], limits=tuple(wording["limits"]), remark=remark)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBundle:
    """Statement of a verified bundle. `proof` is the verdict on its certificates, None if it has no certificates."""

    statement: dict[str, Any]
    proof: proof_files.VerifiedFile | None
    key_id: str


def line(
    system: Mapping[str, str],
    evidence: Mapping[str, Any],
    *,
    request_id: str,
    certificates: Mapping[str, dict[str, Any]],
    waiting: bool = False,
    opened_at: str | None = None,
    ended_at: str | None = None,
    system_map: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the line for a system, with the grade that its evidence supports.

    `system` has `id`, `kind` and `name`. `certificates` maps each certificate's JWS to its statement. `system_map`
    states whose data the system may hold and when it became complete. Times are RFC 3339 with a time zone.

    Raises:
        PreconditionError: if the evidence does not hold up.
    """
    kind = _kinds()[evidence["type"]]
    document: dict[str, Any] = {
        "system": dict(system),
        "waiting": waiting,
        "opened_at": opened_at,
        "ended_at": ended_at,
        "map": None if system_map is None else dict(system_map),
        "numbers": _numbers(evidence, certificates),
        "method": kind.method,
        "limits": list(kind.limits),
        "evidence": dict(evidence),
    }
    return document | {"grade": kind.grade(document, request_id, certificates).value}


def statement(
    *, issued_at: str, request: Mapping[str, Any], lines: Sequence[Line], joint: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a bundle's statement. `request` has the fields of `_REQUEST`, and `joint` is the certified models' joint
    guarantee; None if there is none, or if it covers other models."""
    ordered = sorted(lines, key=lambda entry: (-STRENGTH[Grade(entry["grade"])], entry["system"]["id"]))
    return {
        "format": FORMAT,
        "issued_at": issued_at,
        "request": dict(request),
        "asked": [entry["system"]["id"] for entry in ordered],
        "lines": ordered,
        "joint": None if joint is None else dict(joint),
        "headline": headline_of(ordered),
        "headings": HEADINGS,
        "limits": _limits(ordered, joint),
    }


def headline_of(lines: Sequence[Line]) -> dict[str, Any]:
    """Return the headline for `lines`: the weakest grade (`not_reached` if empty), and remarks on their evidence."""
    weakest = max((Grade(entry["grade"]) for entry in lines), key=STRENGTH.__getitem__, default=Grade.NOT_REACHED)
    by_kind = {kind: [entry for entry in lines if entry["evidence"]["type"] == kind.type] for kind in _kinds().values()}
    remarks = [kind.remark(found) for kind, found in by_kind.items() if found and kind.remark]
    return headline(weakest, [entry["system"]["name"] for entry in lines if entry["grade"] == weakest], remarks)


def _limits(lines: Sequence[Line], joint: Mapping[str, Any] | None) -> list[str]:
    certified = [entry for entry in lines if entry["evidence"]["type"] == "certificate"]
    return [*LIMITS, NO_JOINT] if len(certified) > 1 and joint is None else list(LIMITS)


def is_bundle(text: str) -> bool:
    """Return True if a text is a bundle: a compact JWS of the bundle media type, or JSON with such a `jws`."""
    try:
        header = json.loads(_decoded(_jws_in(text).partition(".")[0]))
    except (ValueError, LookupError, TypeError, RecursionError, PrivacyError):
        return False
    return isinstance(header, dict) and header.get("typ") == TYPE


def verify(
    text: str, jwks: dict[str, Any], *, max_epsilon: float | None = None, max_delta: float | None = None
) -> VerifiedBundle:
    """Verify a bundle offline: its signature, every certificate and acknowledgement, every grade and the headline.

    Raises `CertificateInvalid`, naming the failed check, and `CertificateBeyondLimits` like `certificates.verify`.
    """
    compact = _jws_in(text)
    payload = signed_payload(compact, key_set(jwks), kind=TYPE)
    if payload is None:
        raise CertificateInvalid("The signature was not made by any of the given keys over this bundle.")
    try:
        document = wellformed.read(payload)
        beside = wellformed.read(text) if text.lstrip().startswith("{") else {}
        if beside.get("statement", document) != document:
            raise PreconditionError("statement_beside", "Expected the statement beside the JWS to be the signed one")
        proof = check(document, jwks, max_epsilon=max_epsilon, max_delta=max_delta)
        for name, stated in (("grade", document["headline"]["grade"]), ("request_id", document["request"]["id"])):
            if beside.get(name, stated) != stated:
                raise PreconditionError("statement_beside", f"Expected the {name} beside the JWS to be the signed one")
        key_id = str(json.loads(_decoded(compact.partition(".")[0])).get("kid"))
        return VerifiedBundle(statement=document, proof=proof, key_id=key_id)
    except PrivacyError as error:
        raise CertificateInvalid("{reason}.", reason=str(error)) from error
    except CertificateInvalid:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CertificateInvalid(
            "bundle_complete: the bundle is malformed ({kind}).", kind=type(error).__name__
        ) from error


def check(
    document: dict[str, Any], jwks: dict[str, Any], *, max_epsilon: float | None = None, max_delta: float | None = None
) -> proof_files.VerifiedFile | None:
    """Check a statement whose signature is verified. Return the verdict on its certificates, or None if it has none.

    Raises:
        PreconditionError: with the violated condition as `name`.
        CertificateInvalid: if a certificate or the joint guarantee does not verify.
    """
    require("format_known", document["format"] == FORMAT, f"a {FORMAT} statement")
    require("bundle_complete", document.keys() == _PARTS, f"the parts {sorted(_PARTS)}")
    require("bundle_complete", document["request"].keys() == _REQUEST, f"the request's {sorted(_REQUEST)}")
    wellformed.check("the bundle", {"issued_at": document["issued_at"]}, {"issued_at": wellformed.moment})
    lines = document["lines"]
    ids = [entry["system"]["id"] for entry in lines]
    require("lines_complete", ids == document["asked"] and len(set(ids)) == len(ids) > 0, "one line per system asked")
    proof = _proof(document, jwks, max_epsilon=max_epsilon, max_delta=max_delta)
    certificates = _certificates(document, proof)
    for entry in lines:
        _check_line(entry, document["request"], certificates)
    restated = statement(
        issued_at=document["issued_at"], request=document["request"], lines=lines, joint=document["joint"]
    )
    for part in ("headline", "headings", "limits", "lines"):
        require(f"{part}_recomputed", document[part] == restated[part], f"the {part} that follow from the lines")
    return proof


def _check_line(entry: Line, request: Mapping[str, Any], certificates: Mapping[str, dict[str, Any]]) -> None:
    is_whole = entry.keys() == _LINE and entry["system"].keys() == _SYSTEM
    require("bundle_complete", is_whole, f"the fields {sorted(_LINE)} of each line")
    evidence = entry["evidence"]
    require("evidence_known", evidence["type"] in _kinds(), "a kind of evidence that this release verifies")
    kind = _kinds()[evidence["type"]]
    supported = kind.grade(entry, request["id"], certificates)
    require("grade_of_evidence", entry["grade"] == supported, f"the grade that the evidence supports, {supported}")
    require("method_of_evidence", entry["method"] == kind.method, "the method of the evidence")
    require("limits_of_evidence", entry["limits"] == list(kind.limits), "the limits of the evidence")
    is_recomputed = entry["numbers"] == _numbers(evidence, certificates)
    require("numbers_of_certificate", is_recomputed, "the numbers of the line's certificate")
    is_over = request["status"] == "completed"
    require("waiting_while_open", type(entry["waiting"]) is bool and not (is_over and entry["waiting"]), "no wait")


def _proof(
    document: dict[str, Any], jwks: dict[str, Any], *, max_epsilon: float | None, max_delta: float | None
) -> proof_files.VerifiedFile | None:
    """Verify a bundle's certificates in the same way as those in a proof file."""
    signed: dict[str, list[dict[str, Any]]] = {"certificate": [], "absence": []}
    for entry in document["lines"]:
        if entry["evidence"]["type"] in signed:
            signed[entry["evidence"]["type"]].append({"jws": entry["evidence"]["jws"]})
    if not any(signed.values()):
        require("joint_of_certificates", document["joint"] is None, "no joint guarantee without certificates")
        return None
    require("lines_complete", len(signed["absence"]) <= 1, "at most one statement that nothing is held")
    file = {
        "request_id": document["request"]["id"],
        "certificates": signed["certificate"],
        "joint": document["joint"],
        "nothing_held": signed["absence"][0] if signed["absence"] else None,
    }
    return proof_files.verify_file(json.dumps(file), jwks, max_epsilon=max_epsilon, max_delta=max_delta)


def _certificates(document: dict[str, Any], proof: proof_files.VerifiedFile | None) -> dict[str, dict[str, Any]]:
    """Map the JWS of each verified certificate or absence statement to the statement in it."""
    if proof is None:
        return {}
    signed = [entry["evidence"]["jws"] for kind in ("certificate", "absence") for entry in _of(document, kind)]
    return {jws: verdict.statement for jws, verdict in zip(signed, proof.verdicts, strict=True)}


def _of(document: dict[str, Any], kind: str) -> list[Line]:
    return [entry for entry in document["lines"] if entry["evidence"]["type"] == kind]


def _numbers(evidence: Mapping[str, Any], certificates: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the guarantees in the certificate that `evidence` refers to, or None if it is not a certificate."""
    if evidence["type"] != "certificate":
        return None
    return list(certificates[evidence["jws"]]["guarantees"])


def require(name: str, holds: bool, expected: str) -> None:
    """Raise `PreconditionError`, with the condition's `name`, unless the condition holds."""
    if not holds:
        raise PreconditionError(name, f"Expected {expected}")


def _jws_in(text: str) -> str:
    """Return the JWS in a file's text, which is either the JWS itself or JSON with a `jws`."""
    return str(wellformed.read(text)["jws"]) if text.lstrip().startswith("{") else text.strip()


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _of_certificate(entry: Line, request_id: str, certificates: Mapping[str, dict[str, Any]]) -> Grade:
    signed = certificates[entry["evidence"]["jws"]]
    is_mine = signed["model"]["id"] == entry["system"]["id"] and signed["request"]["id"] == request_id
    is_named = signed["certificate_id"] == entry["evidence"]["certificate_id"]
    require("certificate_of_line", is_mine and is_named, "the certificate of the line's model and request")
    # A widened target is met but does not count as forgetting.
    return Grade.NOT_REACHED if signed["target"]["widened"] else Grade.PROVED


def _of_absence(entry: Line, request_id: str, certificates: Mapping[str, dict[str, Any]]) -> Grade:
    signed = certificates[entry["evidence"]["jws"]]
    is_mine = "looked" in signed and signed["request"]["id"] == request_id
    require("absence_of_request", is_mine, "a statement that nothing is held for the request")
    return Grade.SEARCHED


def _of_erasures(entry: Line, _request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> Grade:
    erasures = entry["evidence"]["erasures"]
    is_listed = isinstance(erasures, list) and (bool(erasures) or bool(entry["evidence"]["erased_by"]))
    require("erasures_listed", is_listed, "the erased datasets, or the request that erased them")
    return Grade.SEARCHED if all(erasure["erased_at"] for erasure in erasures) else Grade.NOT_REACHED


def _of_signed(entry: Line, request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> Grade:
    evidence = entry["evidence"]
    signed = acknowledgements.read(evidence["jws"], evidence["public_key"])
    require("acknowledgement_signed", signed is not None, "an acknowledgement signed by the key of the system")
    stated = signed and (signed["task_id"], signed["system_id"], signed["request_id"])
    expected = (evidence["task_id"], entry["system"]["id"], request_id)
    require("acknowledgement_of_line", stated == expected, "the acknowledgement of the line's task and request")
    return Grade.ACKNOWLEDGED


def _of_key(entry: Line, _request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> Grade:
    named = entry["evidence"]["api_key_id"] and entry["evidence"]["by"]
    require("acknowledgement_of_line", bool(named), "the API key and the person that acknowledged")
    return Grade.ACKNOWLEDGED


def _constant(grade: Grade) -> EvidenceGrade:
    return lambda entry, request_id, certificates: grade


_OWN = tuple(
    EvidenceKind.worded("lethe.features.systems", name, grade)
    for name, grade in (
        ("certificate", _of_certificate),
        ("absence", _of_absence),
        ("erasures", _of_erasures),
        ("destroyed", _constant(Grade.SEARCHED)),
        ("acknowledgement", _of_signed),
        ("acknowledgement_by_key", _of_key),
        ("none", _constant(Grade.NOT_REACHED)),
    )
)


def _kinds() -> dict[str, EvidenceKind]:
    others: tuple[EvidenceKind, ...] = sockets.plugs("lethe.features", "evidence", "EVIDENCE")
    return {kind.type: kind for kind in (*_OWN, *others)}
