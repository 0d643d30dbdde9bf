"""Models no longer say how many processes share a run: each run has one of its own.

Revision ID: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("models", "ranks")


def downgrade() -> None:
    op.add_column("models", sa.Column("ranks", sa.Integer(), server_default="1", nullable=False))
