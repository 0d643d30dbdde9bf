"""Tables of the `leaving` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "leaving_0001"
down_revision = None
branch_labels = ("leaving",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leaving_counts",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("week", sa.DateTime(timezone=True), nullable=False),
        sa.Column("odds", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("answer", sa.String(), nullable=False),
        sa.Column("num_sent", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_leaving_counts_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "week", "odds", "answer", name="pk_leaving_counts"),
    )


def downgrade() -> None:
    op.drop_table("leaving_counts")
