"""Evidence of a bundle: an acknowledgement with the report of a search in the system's stores."""

import hashlib
from collections.abc import Mapping
from typing import Any

from lethe.features.stores import reports
from lethe.features.systems import acknowledgements
from lethe.features.systems.bundle import EvidenceKind, Line
from lethe.features.systems.contract import STRENGTH, Grade
from lethe.proof.errors import PreconditionError

TYPE = "search_report"


def _grade(one: Line, request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> Grade:
    evidence = one["evidence"]
    signed = acknowledgements.read(evidence["jws"], evidence["public_key"])
    if signed is None:
        raise PreconditionError("acknowledgement_signed", "Expected an acknowledgement signed by the key of the system")
    expected = (evidence["task_id"], one["system"]["id"], request_id)
    return grade(signed, evidence["report"], expected)


def grade(signed: Mapping[str, Any], report: str, expected: tuple[str, str, str]) -> Grade:
    """Return the grade of a signed acknowledgement with its report, which must be about the task, system and request
    in `expected`.

    Raises:
        PreconditionError: if the report is another one, malformed, or reports something left.
    """
    if (signed["task_id"], signed["system_id"], signed["request_id"]) != expected:
        raise PreconditionError(
            "acknowledgement_of_line", "Expected the acknowledgement of the line's task and request"
        )
    if hashlib.sha256(report.encode()).hexdigest() != signed["evidence_sha256"]:
        raise PreconditionError("report_signed", "Expected the search report whose digest the system signed")
    document = reports.read(report)
    if (document["task_id"], document["system_id"], document["request_id"]) != expected:
        raise PreconditionError("report_of_line", "Expected the search report of the line's task and request")
    return max((reports.grade_of(finding) for finding in document["findings"]), key=STRENGTH.__getitem__)


EVIDENCE = (
    EvidenceKind(
        type=TYPE,
        grade=_grade,
        method="An agent beside the system's stores erased the person, and searched the stores' files for their "
        "vectors, texts and ids, with a positive control; the system signed the report.",
        limits=(
            "The system runs the agent; whoever holds its key and its machine can report on other files.",
            "Only the files of the configured stores were searched: no backups, archives, replicas or free blocks.",
            "Quantised codes, and what is compressed, are not searched; stores that have them were rebuilt.",
            "Vectors and texts that live records of others have too cannot be told from them.",
        ),
    ),
)
