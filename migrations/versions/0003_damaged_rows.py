"""Datasets whose rows were found damaged say so.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("datasets", sa.Column("damaged_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("datasets", sa.Column("damage", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("datasets", "damage")
    op.drop_column("datasets", "damaged_at")
