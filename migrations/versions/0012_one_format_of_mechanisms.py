"""Mechanisms say of every step which rows it reads, runs say how many steps of their chain come before. What ran until
now read all rows, at one step size.

Models whose versions were accounted for by an earlier format of the ledger learn again: their next entry begins a
chain of the present one.

Revision ID: 0012
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_FORMAT = "lethe-ledger/2"


def upgrade() -> None:
    op.add_column("runs", sa.Column("first_step", sa.Integer(), server_default="0", nullable=False))
    _spell_out()
    _count_steps()
    _relearn()


def downgrade() -> None:
    """What mechanisms say stays true: a reader that does not know the fields passes over them."""
    op.drop_column("runs", "first_step")


def _spell_out() -> None:
    connection = op.get_bind()
    models = sa.table("models", sa.column("id"), sa.column("mechanism", sa.JSON()))
    for model_id, mechanism in connection.execute(sa.select(models.c.id, models.c.mechanism)).all():
        connection.execute(models.update().where(models.c.id == model_id).values(mechanism=_spelt_out(mechanism)))
    datasets = sa.table("datasets", sa.column("id"), sa.column("lost_models", sa.JSON()))
    for dataset_id, lost in connection.execute(sa.select(datasets.c.id, datasets.c.lost_models)).all():
        if lost:
            spelt = {one: said | {"mechanism": _spelt_out(said["mechanism"])} for one, said in lost.items()}
            connection.execute(datasets.update().where(datasets.c.id == dataset_id).values(lost_models=spelt))


def _spelt_out(mechanism: dict[str, Any]) -> dict[str, Any]:
    return {"batch_size": mechanism["num_slots"], "num_batches": 1, "cool_down": 1} | mechanism


def _count_steps() -> None:
    connection = op.get_bind()
    runs = sa.table("runs", *map(sa.column, ("id", "model_id", "kind", "steps_total", "first_step")))
    versions = sa.table("versions", *map(sa.column, ("run_id", "number")))
    published = sa.select(runs.c.id, runs.c.model_id, runs.c.kind, runs.c.steps_total)
    published = published.join_from(runs, versions, versions.c.run_id == runs.c.id)
    steps: dict[str, int] = {}
    for run_id, model_id, kind, total in connection.execute(published.order_by(versions.c.number)).all():
        before = steps.get(model_id, 0) if kind == "unlearn" else 0
        steps[model_id] = before + total
        if before:
            connection.execute(runs.update().where(runs.c.id == run_id).values(first_step=before))


def _relearn() -> None:
    connection = op.get_bind()
    models = sa.table("models", *map(sa.column, ("id", "live_version", "retired_at", "wanted")))
    entries = sa.table("ledger_entries", *map(sa.column, ("model_id", "sequence", "body")))
    live = sa.select(models.c.id, entries.c.body).join_from(
        models,
        entries,
        sa.and_(entries.c.model_id == models.c.id, entries.c.sequence == models.c.live_version),
    )
    live = live.where(models.c.retired_at.is_(None), models.c.wanted.is_(None))
    for model_id, body in connection.execute(live).all():
        if json.loads(body)["format"] != _FORMAT:
            connection.execute(models.update().where(models.c.id == model_id).values(wanted="relearn"))
