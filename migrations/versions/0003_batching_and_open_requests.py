"""How a model's requests wait for each other, and an index of the requests that are open.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_OPEN = sa.text("status IN ('accepted', 'received', 'running')")


def upgrade() -> None:
    op.add_column("models", sa.Column("max_requests", sa.Integer(), nullable=True))
    op.add_column("models", sa.Column("max_wait_seconds", sa.Integer(), nullable=False, server_default="0"))
    op.create_index(
        "ix_deletion_requests_open",
        "deletion_requests",
        ["status", "regulation", "due_at", "extended_due_at", "created_at"],
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    )


def downgrade() -> None:
    op.drop_index("ix_deletion_requests_open", "deletion_requests")
    op.drop_column("models", "max_wait_seconds")
    op.drop_column("models", "max_requests")
