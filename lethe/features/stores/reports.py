"""Search reports: needles searched for in a store's files before and after a deletion, as evidence for a task.

A report is JSON text. The system signs its SHA-256 as part of the task's acknowledgement, so that no part of the report
can be changed later. It contains counts, sizes and digests, but no personal data.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lethe.features.systems import bundle, contract
from lethe.proof import errors, wellformed

VECTOR_STORES = ("chroma", "lancedb", "pgvector")
KINDS = (*VECTOR_STORES, "documents")
"""Supported kinds of stores, which are the kinds that the tests cover."""
FORMAT = "lethe-search-report/1"
MAX_CHARACTERS = 100_000
ENCODINGS = ["utf-8", "float16", "float32", "float64", "vectors at length one"]
"""Forms in which needles are searched for: texts and ids in UTF-8; vectors, also normalised, in three formats."""
MAX_LISTED = 50
"""Maximum number of files that a report lists per finding; the digest covers all files."""
_SOUGHT = ("vector", "text", "id")
_OBJECT = wellformed.Kind("an object", lambda value: isinstance(value, dict))
_LIST = wellformed.Kind("a list of at least one", lambda value: isinstance(value, list) and bool(value))
_REPORT: wellformed.Fields = {
    "format": wellformed.text,
    "task_id": wellformed.named("tsk"),
    "system_id": wellformed.named("sys"),
    "request_id": wellformed.named("dr"),
    "at": wellformed.moment,
    "encodings": _LIST,
    "findings": _LIST,
}
_FINDING: wellformed.Fields = {
    "store": _OBJECT,
    "method": wellformed.text,
    "records": wellformed.count(0),
    "before": _OBJECT,
    "control": _OBJECT,
    "after": _OBJECT,
    "not_sought": _OBJECT,
    "files": _OBJECT,
}
_STORE: wellformed.Fields = {"kind": wellformed.word, "version": wellformed.text}
_FILES: wellformed.Fields = {
    "count": wellformed.count(0),
    "bytes": wellformed.count(0),
    "sha256": wellformed.sha256,
    "listed": wellformed.Kind(
        f"at most {MAX_LISTED} files", lambda value: isinstance(value, list) and len(value) <= MAX_LISTED
    ),
}
_COUNTS: wellformed.Fields = {"sought": wellformed.count(0), "found": wellformed.count(0)}


def compose(
    task: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], *, at: datetime.datetime | None = None
) -> str:
    """Return the report on a task, composed from the findings (JSON) in all of the system's stores.

    Raises:
        PreconditionError: if a finding is malformed or shows that data remains.
    """
    document = {
        "format": FORMAT,
        "task_id": task["id"],
        "system_id": task["system_id"],
        "request_id": task["request_id"],
        "at": (at or datetime.datetime.now(datetime.UTC)).isoformat(),
        "encodings": ENCODINGS,
        "findings": [dict(finding) for finding in findings],
    }
    text = json.dumps(document, separators=(",", ":"))
    read(text)
    return text


def read(text: str) -> dict[str, Any]:
    """Parse a report and return its document.

    Raises:
        PreconditionError: if the report is malformed, or reports remaining data (`search_clean`).
    """
    try:
        document = wellformed.read(text)
    except errors.PreconditionError:
        raise
    except (ValueError, RecursionError) as error:
        raise errors.PreconditionError("report_well_formed", "Expected JSON in the search report") from error
    wellformed.check("the search report", document, _REPORT)
    is_known = document["format"] == FORMAT and document["encodings"] == ENCODINGS
    bundle.require("report_well_formed", is_known and len(text) <= MAX_CHARACTERS, f"a {FORMAT} document")
    for finding in document["findings"]:
        wellformed.check("the finding", finding, _FINDING)
        wellformed.check("the store", finding["store"], _STORE)
        wellformed.check("the files", finding["files"], _FILES)
        bundle.require("report_well_formed", finding["store"]["kind"] in KINDS, "a supported store")
        for part in ("before", "control", "after"):
            wellformed.check(part, finding[part], dict.fromkeys(_SOUGHT, _OBJECT))
            for counts in finding[part].values():
                wellformed.check(part, counts, _COUNTS)
                bundle.require("report_well_formed", counts["found"] <= counts["sought"], "no more found than sought")
        wellformed.check("not_sought", finding["not_sought"], dict.fromkeys(_SOUGHT, wellformed.count(0)))
        is_clean = not any(counts["found"] for counts in finding["after"].values())
        bundle.require("search_clean", is_clean, "a search that found nothing after the deletion")
    return dict(document)


def grade_of(finding: Mapping[str, Any]) -> contract.Grade:
    """Return `searched` if, before the deletion, the search found all needles of the person and the control, and sought
    each of their vectors; otherwise `acknowledged`: deleted but not searched."""
    kind = "vector" if finding["store"]["kind"] in VECTOR_STORES else "text"
    is_seen = all(
        counts["found"] == counts["sought"] for part in ("before", "control") for counts in finding[part].values()
    )
    is_controlled = all(
        finding["control"][each]["sought"] > 0 for each in _SOUGHT if finding["before"][each]["sought"] or each == kind
    )
    # Everything found before is sought afterwards, and so are the ids by which a person is known.
    is_sought = all(
        finding["after"][each]["sought"] >= finding["before"][each]["sought"] + finding["control"][each]["sought"]
        for each in _SOUGHT
    )
    is_told = finding["not_sought"]["vector"] == 0
    return (
        contract.Grade.SEARCHED if is_seen and is_controlled and is_sought and is_told else contract.Grade.ACKNOWLEDGED
    )
