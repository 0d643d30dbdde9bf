"""The time since which wrong codes of a person are counted: the lock that they make ends.

Revision ID: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users", sa.Column("wrong_since", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("users", "wrong_since")
