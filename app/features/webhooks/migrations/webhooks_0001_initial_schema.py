"""Tables of the `webhooks` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "webhooks_0001"
down_revision = None
branch_labels = ("webhooks",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("receiver_ref", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("letter", sa.LargeBinary(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_webhook_deliveries_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_deliveries"),
    )
    op.create_index("ix_webhook_deliveries_ended_at", "webhook_deliveries", ["ended_at"])
    op.create_index(
        "ix_webhook_deliveries_pending",
        "webhook_deliveries",
        ["next_attempt_at"],
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index("ix_webhook_deliveries_request_id", "webhook_deliveries", ["request_id"])
    op.create_index(
        "ix_webhook_deliveries_tenant_id_created_at_id", "webhook_deliveries", ["tenant_id", "created_at", "id"]
    )
    op.create_index(
        "ix_webhook_deliveries_tenant_id_status_created_at_id",
        "webhook_deliveries",
        ["tenant_id", "status", "created_at", "id"],
    )


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
