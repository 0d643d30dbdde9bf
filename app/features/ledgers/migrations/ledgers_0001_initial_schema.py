"""Tables of the `ledgers` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "ledgers_0001"
down_revision = None
branch_labels = ("ledgers",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dp_models",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("dataset_ids", sa.JSON(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_dp_models_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_dp_models"),
    )
    op.create_index("ix_dp_models_tenant_id_created_at_id", "dp_models", ["tenant_id", "created_at", "id"])
    op.create_table(
        "dp_ledgers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("dp_model_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("ledger", sa.JSON(), nullable=False),
        sa.Column("relation", sa.String(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("max_rows_per_person", sa.Integer(), nullable=False),
        sa.Column("budget_epsilon", sa.Double(), nullable=False),
        sa.Column("trained_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("curve", sa.JSON(), nullable=False),
        sa.Column("budget_rows", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["dp_model_id"], ["dp_models.id"], name="fk_dp_ledgers_dp_model_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_dp_ledgers_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_dp_ledgers"),
        sa.UniqueConstraint("dp_model_id", "version", name="uq_dp_ledgers_dp_model_id_version"),
    )
    op.create_table(
        "dp_requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("dp_model_id", sa.String(), nullable=False),
        sa.Column("ledger_id", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("forgotten_rows", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_dp_requests_request_id"),
        sa.ForeignKeyConstraint(["dp_model_id"], ["dp_models.id"], name="fk_dp_requests_dp_model_id"),
        sa.ForeignKeyConstraint(["ledger_id"], ["dp_ledgers.id"], name="fk_dp_requests_ledger_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_dp_requests_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_dp_requests"),
        sa.UniqueConstraint("request_id", "dp_model_id", name="uq_dp_requests_request_id_dp_model_id"),
    )
    op.create_index("ix_dp_requests_dp_model_id_opened_at_id", "dp_requests", ["dp_model_id", "opened_at", "id"])
    op.create_index(
        "ix_dp_requests_waiting",
        "dp_requests",
        ["request_id"],
        sqlite_where=sa.text("status = 'waiting'"),
        postgresql_where=sa.text("status = 'waiting'"),
    )


def downgrade() -> None:
    op.drop_table("dp_requests")
    op.drop_table("dp_ledgers")
    op.drop_table("dp_models")
