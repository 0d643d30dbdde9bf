"""Commands about models trained elsewhere with differential privacy."""

from lethe.cli.derived import OptionShape, add_group, derive
from lethe.features.ledgers.contract import DpModelOut

add_group("dp_models", "dp-model", "Models trained elsewhere with differential privacy, and their ledgers.")


def _line_of(model: DpModelOut) -> str:
    state = "retired" if model.retired_at else "retraining due" if model.retraining_due else "within budget"
    rows = f"{model.forgotten_rows} of {model.budget_rows} rows"
    return f"{model.id}  epsilon {model.epsilon:<7g}  {rows:<16}  {state:<14}  {model.name}"


derive("dp_models.list", line=_line_of)
derive("dp_models.create", OptionShape(positional=("name", "ledger")))
derive("dp_models.renew", OptionShape(positional=("ledger",)))
