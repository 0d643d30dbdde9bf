"""Rehearsals of models: how many people were drawn, and what their scratch copies showed, in numbers alone.

Revision ID: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rehearsals",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("people", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("lost_runs", sa.Integer(), server_default="0", nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_rehearsals_model_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_rehearsals_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_rehearsals"),
    )
    op.create_index("ix_rehearsals_model_id_asked_at_id", "rehearsals", ["model_id", "asked_at", "id"])
    waiting = sa.text("status = 'waiting'")
    op.create_index("ix_rehearsals_waiting", "rehearsals", ["model_id"], sqlite_where=waiting, postgresql_where=waiting)


def downgrade() -> None:
    op.drop_table("rehearsals")
