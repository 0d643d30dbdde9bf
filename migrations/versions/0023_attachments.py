"""Files that officers attach to requests.

Revision ID: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "request_attachments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_request_attachments_request_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_request_attachments_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_request_attachments"),
    )
    op.create_index("ix_request_attachments_request_id_at_id", "request_attachments", ["request_id", "at", "id"])


def downgrade() -> None:
    op.drop_table("request_attachments")
