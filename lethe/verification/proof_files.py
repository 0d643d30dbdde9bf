"""Verification of proof files: one certificate, or all certificates of a deletion request with their joint guarantee.

A file is a compact JWS, JSON with a `jws` field, or the gateway's response to a request for a proof. In the last case,
every part must be about the deletion request that the file names, and the joint guarantee must follow from the
certificates in the file.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lethe.contract.certificates import CertificateVerdictOut
from lethe.contract.problems import CertificateInvalid
from lethe.proof import errors, guarantees, joint, wellformed
from lethe.proof.joint import Joint
from lethe.verification import certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPart:
    """JWS in a proof file, with the fields written `beside` it. A bare JWS has no such fields."""

    jws: str
    beside: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFile:
    """Content of a proof file, not yet verified. `request_id` and `joint` are None if the file does not state them."""

    parts: tuple[ProofPart, ...]
    request_id: str | None = None
    joint: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """Verdict on each statement in a file, and the joint guarantee recomputed from the file's certificates, if any."""

    verdicts: tuple[CertificateVerdictOut, ...]
    joint: Joint | None


def parse(text: str) -> ProofFile:
    """Parse the content of a proof file. Raises `CertificateInvalid` if it contains no JWS."""
    if not text.lstrip().startswith("{"):
        return ProofFile(parts=(ProofPart(jws=text, beside={}),))
    try:
        document = wellformed.read(text)
        if "certificates" not in document:
            return ProofFile(parts=(_part(document),))
        if document.get("damaged"):
            raise CertificateInvalid("The file leaves out certificates, which were damaged when it was made.")
        absences = [part for part in [document.get("nothing_held")] if part is not None]
        parts = tuple(_part(part) for part in [*document["certificates"], *absences])
        request_id = document.get("request_id")
    except (errors.PrivacyError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CertificateInvalid("The file holds neither a compact JWS nor JSON with a 'jws'.") from error
    if not parts:
        raise CertificateInvalid("The file holds no certificate.")
    return ProofFile(parts=parts, request_id=request_id, joint=document.get("joint"))


def _part(document: dict[str, Any]) -> ProofPart:
    if not isinstance(document["jws"], str):
        raise TypeError("A JWS is a string.")
    return ProofPart(jws=document["jws"], beside=document)


def verify_file(
    text: str, jwks: dict[str, Any], *, max_epsilon: float | None = None, max_delta: float | None = None
) -> VerifiedFile:
    """Verify every statement in a proof file and check that the file is complete: all parts are about the request that
    the file names or, if it names none, about the first part's request; no model or statement of absence occurs twice;
    and the joint guarantee covers exactly these models.

    Raises `CertificateInvalid`, naming the failed check, and `CertificateBeyondLimits` (see `certificates.verify`).
    """
    file = parse(text)
    verdicts = tuple(
        certificates.verify(part.jws, jwks, max_epsilon=max_epsilon, max_delta=max_delta) for part in file.parts
    )
    for part, verdict in zip(file.parts, verdicts, strict=True):
        _check_beside(part.beside, verdict.statement)
    certified = [verdict.statement for verdict in verdicts if "evidence" in verdict.statement]
    statements = [verdict.statement for verdict in verdicts]
    named = statements[0]["request"]["id"] if file.request_id is None else file.request_id
    _check_request(named, statements, certified)
    if not certified:
        if file.joint is not None:
            raise CertificateInvalid(
                "The file states a joint guarantee, and holds no certificate that it follows from."
            )
        return VerifiedFile(verdicts=verdicts, joint=None)
    try:
        composed = joint.of(
            {statement["model"]["id"]: guarantees.Evidence.from_json(statement["evidence"]) for statement in certified}
        )
    except errors.PrivacyError as error:
        raise CertificateInvalid(f"{error}.") from error
    if file.joint is not None:
        _check_joint(file.joint, composed)
    return VerifiedFile(verdicts=verdicts, joint=composed)


def _check_beside(beside: dict[str, Any], statement: dict[str, Any]) -> None:
    """Check that the readable fields next to a JWS equal the signed fields."""
    if beside.get("statement", statement) != statement:
        raise CertificateInvalid("The statement beside the JWS is not the signed one.")
    for name, stated in _facts(statement):
        if beside.get(name, stated) != stated:
            raise CertificateInvalid(f"The {name} beside the JWS is not that of the signed statement.")


def _facts(statement: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "request_id", statement["request"]["id"]
    if "evidence" in statement:
        yield "id", statement["certificate_id"]
        yield "model_id", statement["model"]["id"]
        yield "version", statement["model"]["version"]


def _check_request(request_id: str, statements: list[dict[str, Any]], certified: list[dict[str, Any]]) -> None:
    for statement in statements:
        if statement["request"]["id"] != request_id:
            raise CertificateInvalid(
                f"The file is about request {request_id}, and holds a statement about {statement['request']['id']}."
            )
    repeated = [model for model, count in Counter(part["model"]["id"] for part in certified).items() if count > 1]
    if repeated:
        raise CertificateInvalid(f"The file holds several certificates of model {repeated[0]}.")
    absences = len(statements) - len(certified)
    if absences > 1 or (absences and certified):
        raise CertificateInvalid("The file states that nothing was held, and holds other statements beside that.")


def _check_joint(stated: Any, composed: Joint) -> None:
    """Check that a stated joint guarantee equals the one composed from the certificates."""
    try:
        missing = sorted(set(stated["models"]) - set(composed.models))
        if missing:
            raise CertificateInvalid(
                f"The joint guarantee covers model {missing[0]}, whose certificate is not in the file: it cannot be "
                "recomputed."
            )
        if stated["models"] != list(composed.models):
            raise CertificateInvalid("The joint guarantee leaves out a model whose certificate is in the file.")
        for guarantee, recomputed in zip(stated["guarantees"], composed.guarantees, strict=True):
            guarantees.confirm("joint", stated=_with_floats(guarantee), recomputed=recomputed.stated())
        recomputed_joint = composed.to_json()
        names = recomputed_joint.keys() - {"models", "guarantees"}
        guarantees.confirm(
            "joint",
            stated=_with_floats({name: stated[name] for name in names}),
            recomputed={name: recomputed_joint[name] for name in names},
        )
    except errors.PrivacyError as error:
        raise CertificateInvalid(f"{error}.") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CertificateInvalid("The joint guarantee beside the certificates is malformed.") from error


def _with_floats(document: dict[str, Any]) -> dict[str, Any]:
    """Return an unsigned part with its integers as floats, because programs that rewrite JSON can write 0.0 as 0."""
    return {name: float(value) if type(value) is int else value for name, value in document.items()}
