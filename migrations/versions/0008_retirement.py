"""Models and datasets are retired; failures that repeat are counted on one run.

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("datasets", "models"):
        op.add_column(table, sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True))
        op.add_column(table, sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("runs", sa.Column("repeated", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("runs", "repeated")
    for table in ("models", "datasets"):
        op.drop_column(table, "destroyed_at")
        op.drop_column(table, "retired_at")
