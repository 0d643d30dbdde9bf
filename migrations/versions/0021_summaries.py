"""Indexes by which requests are summed up: when they came in, and when they were completed.

Revision ID: 0021
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_RECEIVED = "ix_deletion_requests_tenant_id_submitted_at_id"
_COMPLETED = "ix_deletion_requests_completed"


def upgrade() -> None:
    op.create_index(_RECEIVED, "deletion_requests", ["tenant_id", "submitted_at", "id"])
    was_completed = sa.text("completed_at IS NOT NULL")
    op.create_index(
        _COMPLETED,
        "deletion_requests",
        ["tenant_id", "completed_at", "submitted_at", "deadline"],
        sqlite_where=was_completed,
        postgresql_where=was_completed,
    )


def downgrade() -> None:
    op.drop_index(_COMPLETED, "deletion_requests")
    op.drop_index(_RECEIVED, "deletion_requests")
