"""Tables of the `people` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "people_0001"
down_revision = None
branch_labels = ("people",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("password_hash", sa.String(), nullable=True),
        sa.Column("totp", sa.LargeBinary(), nullable=True),
        sa.Column("totp_last_step", sa.BigInteger(), nullable=True),
        sa.Column("wrong_codes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("wrong_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("oidc_issuer", sa.String(), nullable=True),
        sa.Column("oidc_subject", sa.String(), nullable=True),
        sa.Column("invitation_hash", sa.String(), nullable=True),
        sa.Column("invitation_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_login_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_users_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("email", name="uq_users_email"),
        sa.UniqueConstraint("invitation_hash", name="uq_users_invitation_hash"),
        sa.UniqueConstraint("oidc_issuer", "oidc_subject", name="uq_users_oidc_issuer_oidc_subject"),
    )
    op.create_index("ix_users_tenant_id_created_at_id", "users", ["tenant_id", "created_at", "id"])


def downgrade() -> None:
    op.drop_table("users")
