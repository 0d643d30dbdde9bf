"""Table of the `stores` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "stores_0001"
down_revision = None
branch_labels = ("stores",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "search_reports",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["system_tasks.id"], name="fk_search_reports_task_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_search_reports_tenant_id"),
        sa.PrimaryKeyConstraint("task_id", name="pk_search_reports"),
    )


def downgrade() -> None:
    op.drop_table("search_reports")
