"""Indexes for pages of requests, however many are stored.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SEARCHED = ("status", "subject_ref", "external_id")


def upgrade() -> None:
    for column in _SEARCHED:
        op.create_index(
            f"ix_deletion_requests_{column}_created_at_id", "deletion_requests", [column, "created_at", "id"]
        )
        op.drop_index(f"ix_deletion_requests_{column}", "deletion_requests")


def downgrade() -> None:
    for column in _SEARCHED:
        op.create_index(f"ix_deletion_requests_{column}", "deletion_requests", [column])
        op.drop_index(f"ix_deletion_requests_{column}_created_at_id", "deletion_requests")
