"""Datasets with a budget for what all their versions together may tell.

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("datasets", sa.Column("adaptive_budget", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("datasets", "adaptive_budget")
