"""Tables of the `protocols` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "protocols_0001"
down_revision = None
branch_labels = ("protocols",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "identity_issuers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("audience", sa.String(), nullable=False),
        sa.Column("jwks", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_identity_issuers_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_identity_issuers"),
        sa.UniqueConstraint("tenant_id", "issuer", name="uq_identity_issuers_tenant_id_issuer"),
    )
    op.create_table(
        "agents",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("verify_key", sa.String(), nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=True),
        sa.Column("set_up_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name="fk_agents_api_key_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_agents_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_agents"),
        sa.UniqueConstraint("agent_id", "tenant_id", name="uq_agents_agent_id_tenant_id"),
    )
    op.create_index("ix_agents_tenant_id_created_at_id", "agents", ["tenant_id", "created_at", "id"])
    op.create_table(
        "used_statements",
        sa.Column("issuer_id", sa.String(), nullable=False),
        sa.Column("statement_hash", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["issuer_id"], ["identity_issuers.id"], name="fk_used_statements_issuer_id"),
        sa.PrimaryKeyConstraint("issuer_id", "statement_hash", name="pk_used_statements"),
    )
    op.create_index("ix_used_statements_expires_at", "used_statements", ["expires_at"])


def downgrade() -> None:
    op.drop_table("used_statements")
    op.drop_table("agents")
    op.drop_table("identity_issuers")
