"""The signed statement about a request that held nothing: which rule it was looked for under, and where.

No guarantee follows from it and no number is in it. It says that at one time no row of the named datasets, and no row
that waited to be added to them, was under the identifier that the request was about, as the identity rule reads
identifiers. Who that is, the statement does not say: it names the request.
"""

from typing import Any

from lethe.proof import wellformed
from lethe.proof.errors import PreconditionError
from lethe.proof.wellformed import Fields

FORMAT = "lethe-absence/1"

LIMITS = [
    "It is about the datasets that are named, as they were then: not about rows that came later.",
    "Rows held under another identifier, or that copy this person's content, are not covered.",
    "Models and copies of weights outside, made from rows of this person that were erased before, have certificates of"
    " their own.",
]

_REQUEST: Fields = {
    "id": wellformed.named("dr"),
    "submitted_at": wellformed.moment,
}
_LOOKED: Fields = {
    "at": wellformed.moment,
    "identity_rule": wellformed.text,
    "records": wellformed.zero,
}
_PARTS = {"format", "request", "looked", "datasets", "limits"}


def statement(*, request: dict[str, Any], looked_at: str, identity_rule: str, dataset_ids: list[str]) -> dict[str, Any]:
    """State that nothing was held about the person of a request. Raises what `check` raises if it is not well
    formed."""
    document = {
        "format": FORMAT,
        "request": request,
        "looked": {"at": looked_at, "identity_rule": identity_rule, "records": 0},
        "datasets": sorted(dataset_ids),
        "limits": LIMITS,
    }
    check(document)
    return document


def check(document: dict[str, Any]) -> None:
    """Raises `PreconditionError` unless the statement says what its format has, and nothing else."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PreconditionError("format_known", f"Expected a {FORMAT} statement")
    if document.keys() != _PARTS:
        raise PreconditionError("statement_complete", f"Expected the parts {sorted(_PARTS)}")
    wellformed.check("request", document["request"], _REQUEST)
    wellformed.check("looked", document["looked"], _LOOKED)
    found = document["datasets"]
    if not isinstance(found, list) or not all(wellformed.named("ds").holds(one) for one in found):
        raise PreconditionError("field_well_formed", "Expected datasets to be ids such as ds_0a1b")
    if found != sorted(set(found)):
        raise PreconditionError("field_well_formed", "Expected every dataset once, in order")
    if document["limits"] != LIMITS:
        raise PreconditionError("limits_of_format", f"Expected the limits of {FORMAT}")
