"""Bundle evidence: an acknowledgement with the report on a search of the system's stores."""

import hashlib
import operator
from collections.abc import Mapping
from typing import Any

from lethe.features.stores import reports
from lethe.features.systems import acknowledgements, bundle, contract

TYPE = "search_report"


def _grade(line: bundle.Line, request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> contract.Grade:
    evidence = line["evidence"]
    signed = acknowledgements.read(evidence["jws"], evidence["public_key"])
    bundle.require("acknowledgement_signed", signed is not None, "an acknowledgement signed by the key of the system")
    expected = (evidence["task_id"], line["system"]["id"], request_id)
    return grade(signed or {}, evidence["report"], expected)


def grade(signed: Mapping[str, Any], report: str, expected: tuple[str, str, str]) -> contract.Grade:
    """Return the grade that a report and its signed acknowledgement support. Both must name the task, system and
    request in `expected`.

    Raises:
        PreconditionError: if the report is not the signed one, is malformed, or reports remaining data.
    """
    about = operator.itemgetter("task_id", "system_id", "request_id")
    bundle.require(
        "acknowledgement_of_line", about(signed) == expected, "the acknowledgement of the line's task and request"
    )
    is_signed = hashlib.sha256(report.encode()).hexdigest() == signed["evidence_sha256"]
    bundle.require("report_signed", is_signed, "the search report whose digest the system signed")
    document = reports.read(report)
    bundle.require("report_of_line", about(document) == expected, "the search report of the line's task and request")
    return max((reports.grade_of(finding) for finding in document["findings"]), key=contract.STRENGTH.__getitem__)


EVIDENCE = (bundle.EvidenceKind.worded("lethe.features.stores", TYPE, _grade),)
