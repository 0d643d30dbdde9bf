"""What is said of runs and requests that are kept: what audits prove, at the error at which a run is refused; and no
outcome `forgotten` where a model met a target beyond the default bounds.

Revision ID: 0005
Revises: 0001
"""

import math
from typing import Any

import sqlalchemy as sa
from alembic import op
from scipy import special

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ERROR = 1e-6 / 3
_MARGIN = 1e-9
_ROUNDING = 2.0**-49


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
        "epsilon_lower_bound": _epsilon_below(mu, delta),
        "error": _ERROR,
    }


# The conversion from mu-GDP as it was when this was released: a migration rests on no code that may change.


def _epsilon_below(mu: float, delta: float) -> float:
    return _epsilon(mu, delta + 2 * _MARGIN * delta * (1 - delta)) * (1 - 2.0**-40)


def _epsilon(mu: float, delta: float) -> float:
    if delta >= _total_variation(mu):
        return 0.0
    if mu > 1e154:
        return math.inf
    margin = _MARGIN * (1 - delta)
    target, tolerance = math.log(delta) - margin, 0.1 * margin
    x = -float(special.ndtri(delta))
    for _ in range(100):
        log_delta, elasticity = _log_delta(x, mu)
        gap = log_delta - target
        step = gap / (-elasticity * _mills(x + mu))
        if abs(gap) <= tolerance or abs(step) <= _ROUNDING / 2 * abs(x):
            return math.nextafter(mu * (x + mu / 2) * (1 + _ROUNDING), math.inf)
        x -= step
    raise ArithmeticError(f"Newton's method has not converged for mu={mu}, delta={delta}")


def _total_variation(mu: float) -> float:
    if mu == 0:
        return 0.0
    log_delta, _ = _log_delta(-mu / 2 - _ROUNDING * (mu / 2), mu)
    bound = min(log_delta * (1 - _ROUNDING) - _MARGIN / 2 * math.expm1(log_delta), 0.0)
    return math.nextafter(math.exp(bound), 1.0)


def _log_delta(x: float, mu: float) -> tuple[float, float]:
    log_phi = -0.5 * x * x - 0.5 * math.log(2 * math.pi)
    if mu < 0.025 * max(1.0, x):
        middle, reach = x + mu / 2, math.sqrt(0.6) * mu / 2
        mean = (5 * _mills_slope(middle - reach) + 8 * _mills_slope(middle) + 5 * _mills_slope(middle + reach)) / 18
        log_delta = log_phi + math.log(mu) + math.log(mean)
    elif x >= 0:
        log_delta = log_phi + math.log(_mills(x) - _mills(x + mu))
    else:
        log_delta = math.log1p(-0.5 * math.erfc(-math.sqrt(0.5) * x) - math.exp(log_phi) * _mills(x + mu))
    return log_delta, math.exp(log_phi + math.log(mu) - log_delta)


def _mills(z: float) -> float:
    return math.sqrt(0.5 * math.pi) * float(special.erfcx(math.sqrt(0.5) * z))


def _mills_slope(z: float) -> float:
    if z < 64:
        return 1 - z * _mills(z)
    v = 1 / (z * z)
    return v * (1 - 3 * v * (1 - 5 * v * (1 - 7 * v)))
