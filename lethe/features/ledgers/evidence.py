"""Bundle evidence for a model with a ledger: the ledger itself, from which verifiers recompute epsilon."""

import datetime
from collections.abc import Mapping
from typing import Any

from lethe.features.ledgers import accountant
from lethe.features.systems import bundle, contract

BOUNDED, SPENT = "dp_ledger", "dp_ledger_spent"
_FIELDS = {
    "type",
    "ledger_id",
    "version",
    "ledger",
    "relation",
    "delta",
    "max_rows_per_person",
    "trained_from",
    "budget_epsilon",
    "forgotten_rows",
    "epsilon_of_person",
    "epsilon_of_forgotten",
}


def _of_ledger(line: bundle.Line, _request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> contract.Grade:
    """Recompute both epsilons in a line's evidence from the ledger there, and return the grade that they support."""
    evidence = line["evidence"]
    bundle.require("ledger_whole", evidence.keys() == _FIELDS, f"the fields {sorted(_FIELDS)}")
    bundle.require("relation_known", evidence["relation"] in accountant.RELATIONS, f"one of {accountant.RELATIONS}")
    steps, delta = accountant.read(evidence["ledger"]), evidence["delta"]
    forgotten, of_person = evidence["forgotten_rows"], evidence["max_rows_per_person"]
    bundle.require("rows_counted", type(of_person) is int and of_person > 0, "at least one row of a person")
    # A training run that started after the request was accepted left its person out of the model.
    is_later = _moment(evidence["trained_from"]) > _moment(line["opened_at"])
    bundle.require(
        "rows_counted", is_later == (forgotten == 0), "forgotten rows unless the training started afterwards"
    )
    bundle.require("rows_counted", forgotten == 0 or forgotten >= of_person, "at least the rows of this person")
    rows = {"epsilon_of_person": of_person, "epsilon_of_forgotten": forgotten}
    for name, number in rows.items():
        holds = accountant.is_epsilon(evidence[name], steps, rows=number, delta=delta)
        bundle.require("epsilon_recomputed", holds, f"the {name} that follows from the ledger")
        within = evidence[name] <= evidence["budget_epsilon"] <= accountant.MAX_EPSILON
        bundle.require("epsilon_within_budget", within, f"{name} within the budget")
    return contract.Grade.DECLARED


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


_PACKAGE = "lethe.features.ledgers"
EVIDENCE = (
    bundle.EvidenceKind.worded(_PACKAGE, BOUNDED, _of_ledger),
    bundle.EvidenceKind.worded(_PACKAGE, SPENT, lambda line, request_id, certificates: contract.Grade.NOT_REACHED),
)
