"""Comparing rows that are learned from with rows that are measured on, between two transactions."""

from collections.abc import Sequence

from app.api.calls import Call
from app.catalogue import evaluation
from app.catalogue.evaluation import Comparison
from lethe.contract.problems import DatasetDamaged, DatasetUnknown, Unavailable


def compare(call: Call, comparisons: Sequence[Comparison]) -> None:
    """Raises `EvaluationOverlaps`; `Unavailable` where rows came or went meanwhile. A caller who goes on asks once
    more, in the transaction that rests on it, whether these are still the comparisons to make."""
    for one in comparisons:
        try:
            evaluation.compare(call.installation.rows, one, may_know=not call.caller.discreet)
        except (DatasetUnknown, DatasetDamaged, FileNotFoundError) as error:
            raise came_or_went() from error


def came_or_went() -> Unavailable:
    return Unavailable("Rows came or went while they were compared, or cannot be read; repeat the call.")
