"""The person whose case a request is, and internal notes about it.

Revision ID: 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
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
    op.create_table(
        "request_notes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_request_notes_request_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_request_notes_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_request_notes"),
    )
    op.create_index("ix_request_notes_request_id_at_id", "request_notes", ["request_id", "at", "id"])


def downgrade() -> None:
    op.drop_table("request_notes")
    op.drop_index("ix_deletion_requests_tenant_id_assignee_created_at_id", "deletion_requests")
    op.drop_column("deletion_requests", "assignee")
