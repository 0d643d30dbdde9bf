"""The person whose case a request is.

Revision ID: 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("deletion_requests", sa.Column("assignee", sa.String(), nullable=True))
    is_assigned = sa.text("assignee IS NOT NULL")
    op.create_index(
        "ix_deletion_requests_tenant_id_assignee_created_at_id",
        "deletion_requests",
        ["tenant_id", "assignee", "created_at", "id"],
        sqlite_where=is_assigned,
        postgresql_where=is_assigned,
    )


def downgrade() -> None:
    op.drop_index("ix_deletion_requests_tenant_id_assignee_created_at_id", "deletion_requests")
    op.drop_column("deletion_requests", "assignee")
