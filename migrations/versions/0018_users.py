"""People who log in to the dashboard. Its sessions end at the upgrade: each is of a key or of a person from here on.

Revision ID: 0018
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("password_hash", sa.String(), nullable=True),
        sa.Column("totp", sa.LargeBinary(), nullable=True),
        sa.Column("totp_last_step", sa.BigInteger(), nullable=True),
        sa.Column("wrong_codes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("oidc_issuer", sa.String(), nullable=True),
        sa.Column("oidc_subject", sa.String(), nullable=True),
        sa.Column("invitation_hash", sa.String(), nullable=True),
        sa.Column("invitation_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_login_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_users_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("email", name=op.f("uq_users_email")),
        sa.UniqueConstraint("invitation_hash", name=op.f("uq_users_invitation_hash")),
        sa.UniqueConstraint("oidc_issuer", "oidc_subject", name=op.f("uq_users_oidc_issuer_oidc_subject")),
    )
    op.create_index(op.f("ix_users_tenant_id_created_at_id"), "users", ["tenant_id", "created_at", "id"])
    op.drop_table("dashboard_sessions")  # SQLite cannot let go of NOT NULL
    _make_sessions(
        sa.Column("api_key_id", sa.String(), nullable=True),
        sa.Column("user_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_dashboard_sessions_user_id")),
        sa.CheckConstraint("(api_key_id IS NULL) <> (user_id IS NULL)", name="key_or_user"),
    )
    op.create_index(op.f("ix_dashboard_sessions_user_id"), "dashboard_sessions", ["user_id"])


def downgrade() -> None:
    op.drop_table("dashboard_sessions")
    _make_sessions(sa.Column("api_key_id", sa.String(), nullable=False))
    op.drop_table("users")


def _make_sessions(*more: sa.schema.SchemaItem) -> None:
    op.create_table(
        "dashboard_sessions",
        sa.Column("token_hash", sa.String(), nullable=False),
        *more,
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name=op.f("fk_dashboard_sessions_api_key_id")),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_dashboard_sessions")),
    )
    for column in ("seen_at", "expires_at"):
        op.create_index(op.f(f"ix_dashboard_sessions_{column}"), "dashboard_sessions", [column])
