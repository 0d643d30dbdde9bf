"""Signed statement of absence for a request that matched no record: the identity rule and the datasets searched.

The statement carries no privacy guarantee. It asserts that, at a given time, no row of the named datasets, and no row
queued for insertion into them, matched the request's identifier under the identity rule. It names the request, but
never the identifier or the person.
"""

from typing import Any

from lethe.proof import errors, wellformed

FORMAT = "lethe-absence/1"

LIMITS = [
    "The statement is about the named datasets as they were at that time, not about rows that were added later.",
    "Rows under another identifier, and rows that copy this person's content, are not covered.",
    "Models and copies of weights outside, made from rows of this person that were erased before, have certificates of"
    " their own.",
]

_REQUEST: wellformed.Fields = {"id": wellformed.named("dr"), "submitted_at": wellformed.moment}
_LOOKED: wellformed.Fields = {"at": wellformed.moment, "identity_rule": wellformed.text, "records": wellformed.zero}
_PARTS = {"format", "request", "looked", "datasets", "limits"}


def statement(*, request: dict[str, Any], looked_at: str, identity_rule: str, dataset_ids: list[str]) -> dict[str, Any]:
    """Return the statement that no record matched a request's identifier at `looked_at` (RFC 3339).

    Raises:
        PreconditionError: if the statement is not well formed (`check`).
    """
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
    """Check that a statement has exactly the parts that its format requires, each well formed.

    Raises:
        PreconditionError: if a part is missing, unexpected or malformed; `name` is the violated condition.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise errors.PreconditionError("format_known", f"Expected a {FORMAT} statement")
    if document.keys() != _PARTS:
        raise errors.PreconditionError("statement_complete", f"Expected the parts {sorted(_PARTS)}")
    wellformed.check("request", document["request"], _REQUEST)
    wellformed.check("looked", document["looked"], _LOOKED)
    dataset_ids = document["datasets"]
    if not isinstance(dataset_ids, list) or not all(wellformed.named("ds").holds(value) for value in dataset_ids):
        raise errors.PreconditionError("field_well_formed", "Expected datasets to be ids such as ds_0a1b")
    if dataset_ids != sorted(set(dataset_ids)):
        raise errors.PreconditionError("field_well_formed", "Expected every dataset once, in order")
    if document["limits"] != LIMITS:
        raise errors.PreconditionError("limits_of_format", f"Expected the limits of {FORMAT}")
