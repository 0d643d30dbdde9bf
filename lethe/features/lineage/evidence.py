"""Bundle evidence about copies of a model's weights that were exported while they still contained the person's data."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt

from lethe.contract.fields import Answer
from lethe.features.lineage.contract import CopyState, ExportOut
from lethe.features.systems import bundle, contract, sentences

COPIES = "copies"
MAX_LISTED = 500
_PACKAGE = "lethe.features.lineage"


class ListedCopy(ExportOut, extra="forbid"):
    state: CopyState

    def state_without(self, first_without: int | None) -> CopyState:
        """Return the state implied by the statement about this copy, given the first version without the person."""
        if self.destroyed is not None:
            return CopyState.DESTROYED
        has_forgotten = first_without is not None and (self.replaced_by or 0) >= first_without
        return CopyState.REACHED if has_forgotten else CopyState.OUT


class CopiesEvidence(Answer, extra="forbid"):
    """Copies of one model. `first_without` is the number of its first version without the person; None if there is no
    such version yet. `counts` covers all copies; at most `MAX_LISTED` of them are listed, worst first."""

    type: Literal["copies"] = "copies"
    first_without: PositiveInt | None
    counts: dict[CopyState, NonNegativeInt]
    copies: list[ListedCopy]


def _of_copies(line: bundle.Line, _request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> contract.Grade:
    evidence = CopiesEvidence.model_validate_json(json.dumps(line["evidence"]), strict=True)
    counts, first_without, left = evidence.counts, evidence.first_without, MAX_LISTED
    bundle.require(
        "copies_counted", len(counts) == len(CopyState) and any(counts.values()), "copies in each state, or 0"
    )
    listed = [copy.state for copy in evidence.copies]
    for state in CopyState:
        bundle.require("copies_listed", listed.count(state) == min(counts[state], left), "the copies that were counted")
        left -= listed.count(state)
    for copy in evidence.copies:
        bundle.require("copy_carried", first_without is None or copy.version < first_without, "copies with the person")
        is_stated = any((copy.kind, copy.place, copy.destroyed, copy.replaced_by))
        bundle.require(
            "copy_stated", not is_stated or bool(copy.stated_by and copy.stated_at), "who stated it, and when"
        )
        bundle.require("state_of_copy", copy.state == copy.state_without(first_without), "the state that was stated")
    return (
        contract.Grade.NOT_REACHED
        if counts[CopyState.OUT] or counts[CopyState.REACHED]
        else contract.Grade.ACKNOWLEDGED
    )


def _remark(lines: Sequence[bundle.Line]) -> sentences.Remark:
    counts = {state.value: sum(line["evidence"]["counts"][state] for line in lines) for state in CopyState}
    wording = sentences.texts(_PACKAGE)["remark"].items()
    return {reader: {tongue: text.format(**counts) for tongue, text in of.items()} for reader, of in wording}


EVIDENCE = (bundle.EvidenceKind.worded(_PACKAGE, COPIES, _of_copies, _remark),)
