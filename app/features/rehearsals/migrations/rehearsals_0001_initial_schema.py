"""Tables of the `rehearsals` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "rehearsals_0001"
down_revision = None
branch_labels = ("rehearsals",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rehearsals",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("people", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("lost_runs", sa.Integer(), server_default="0", nullable=False),
        sa.Column("report", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_rehearsals_model_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_rehearsals_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_rehearsals"),
    )
    op.create_index("ix_rehearsals_model_id_asked_at_id", "rehearsals", ["model_id", "asked_at", "id"])
    op.create_index(
        "ix_rehearsals_waiting",
        "rehearsals",
        ["model_id"],
        sqlite_where=sa.text("status = 'waiting'"),
        postgresql_where=sa.text("status = 'waiting'"),
    )
    op.create_table(
        "rehearsed_rows",
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("rehearsal_id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_rehearsed_rows_dataset_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_rehearsed_rows_tenant_id"),
        sa.PrimaryKeyConstraint("dataset_id", name="pk_rehearsed_rows"),
    )


def downgrade() -> None:
    op.drop_table("rehearsed_rows")
    op.drop_table("rehearsals")
