"""Audits that are kept: what they prove, at the error at which a run is refused.

Revision ID: 0005
Revises: 0001
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from scipy import special

from app.privacy import conversion

revision = "0005"
down_revision = "0001"
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


def downgrade() -> None:
    """What was reported before follows from the counts, which are as they were."""


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
