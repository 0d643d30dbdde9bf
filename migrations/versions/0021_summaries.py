"""Indexes by which requests are summed up: when they came in, were completed, and are reported to be.

Revision ID: 0021
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_RECEIVED = "ix_deletion_requests_tenant_id_submitted_at_id"
_COMPLETED, _REPORTED = "ix_deletion_requests_completed", "ix_deletion_requests_reported"
_REPORTED_BEFORE = "ix_deletion_requests_tenant_id_reported_at"
_TABLE = "deletion_requests"


def upgrade() -> None:
    op.create_index(_RECEIVED, _TABLE, ["tenant_id", "submitted_at", "id"])
    _of_some(_COMPLETED, "completed_at", "submitted_at", "deadline")
    op.drop_index(_REPORTED_BEFORE, _TABLE)
    _of_some(_REPORTED, "reported_at", "status", "submitted_at", "deadline")


def downgrade() -> None:
    op.drop_index(_REPORTED, _TABLE)
    _of_some(_REPORTED_BEFORE, "reported_at")
    op.drop_index(_COMPLETED, _TABLE)
    op.drop_index(_RECEIVED, _TABLE)


def _of_some(name: str, moment: str, *columns: str) -> None:
    """Index those requests that have the moment."""
    some = sa.text(f"{moment} IS NOT NULL")
    op.create_index(name, _TABLE, ["tenant_id", moment, *columns], sqlite_where=some, postgresql_where=some)
