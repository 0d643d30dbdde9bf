"""Tables of the `desk` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "desk_0001"
down_revision = None
branch_labels = ("desk",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dashboard_sessions",
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=True),
        sa.Column("user_id", sa.String(), nullable=True),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("(api_key_id IS NULL) <> (user_id IS NULL)", name="key_or_user"),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name="fk_dashboard_sessions_api_key_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_dashboard_sessions_user_id"),
        sa.PrimaryKeyConstraint("token_hash", name="pk_dashboard_sessions"),
    )
    op.create_index("ix_dashboard_sessions_expires_at", "dashboard_sessions", ["expires_at"])
    op.create_index("ix_dashboard_sessions_seen_at", "dashboard_sessions", ["seen_at"])
    op.create_index("ix_dashboard_sessions_user_id", "dashboard_sessions", ["user_id"])
    op.create_table(
        "request_attachments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_request_attachments_request_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_request_attachments_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_request_attachments"),
    )
    op.create_index("ix_request_attachments_request_id_at_id", "request_attachments", ["request_id", "at", "id"])
    op.create_table(
        "request_notes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_request_notes_request_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_request_notes_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_request_notes"),
    )
    op.create_index("ix_request_notes_request_id_at_id", "request_notes", ["request_id", "at", "id"])


def downgrade() -> None:
    op.drop_table("request_notes")
    op.drop_table("request_attachments")
    op.drop_table("dashboard_sessions")
