"""What is said of runs and requests that are kept: what audits prove, at the error at which a run is refused; and no
outcome `forgotten` where a model met a target beyond the default bounds.

Revision ID: 0005
Revises: 0001
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from scipy import special

from lethe.proof import conversion

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ERROR = 1e-6 / 3


def upgrade() -> None:
    runs = sa.table("runs", sa.column("id"), sa.column("model_id"), sa.column("audit", sa.JSON(none_as_null=True)))
    models = sa.table("models", sa.column("id"), sa.column("delta"))
    kept = sa.select(runs.c.id, runs.c.audit, models.c.delta).join_from(runs, models, runs.c.model_id == models.c.id)
    connection = op.get_bind()
    for run_id, audit, delta in connection.execute(kept.where(runs.c.audit.is_not(None))).all():
        connection.execute(runs.update().where(runs.c.id == run_id).values(audit=_again(audit, delta)))
    op.execute(
        "UPDATE deletion_requests SET outcome = 'target_widened' WHERE outcome = 'forgotten' AND EXISTS ("
        "SELECT 1 FROM request_models JOIN models ON models.id = request_models.model_id"
        " JOIN datasets ON datasets.id = models.dataset_id"
        " WHERE request_models.request_id = deletion_requests.id AND request_models.status = 'completed'"
        " AND (models.epsilon > 8 OR models.delta > 1.0 / datasets.num_slots))"
    )


def downgrade() -> None:
    """What was reported of audits before follows from their counts, which are as they were."""
    op.execute("UPDATE deletion_requests SET outcome = 'forgotten' WHERE outcome = 'target_widened'")


def _again(audit: dict[str, Any], delta: float) -> dict[str, Any]:
    """The same counts and what they prove: Clopper and Pearson's bound of the right guesses, of one record."""
    guesses, lanes = audit["guesses"], audit["lanes"]
    right = guesses["true_positives"] + guesses["nonmembers"] - guesses["false_positives"]
    rate = float(special.betaincinv(right, lanes - right + 1, _ERROR)) if right else 0.0
    mu = max(0.0, 2 * float(special.ndtri(rate))) / audit["records"] * (1 - 2.0**-40)
    return audit | {
        "notion": "deletion" if audit["steps_before"] else "release",
        "mu_lower_bound": mu,
        "epsilon_lower_bound": conversion.gdp_epsilon_below(mu=mu, delta=delta),
        "error": _ERROR,
    }
