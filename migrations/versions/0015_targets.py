"""Datasets may have a target, a number in a range that is stated, instead of classes.

Revision ID: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("datasets", sa.Column("target", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("datasets", "target")
