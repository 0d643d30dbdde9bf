"""How many processes share a model's runs.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("ranks", sa.Integer(), server_default="1", nullable=False))


def downgrade() -> None:
    op.drop_column("models", "ranks")
