"""Tables of the `lineage` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "lineage_0001"
down_revision = None
branch_labels = ("lineage",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "exports",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=True),
        sa.Column("place", sa.String(), nullable=True),
        sa.Column("destroyed", sa.String(), nullable=True),
        sa.Column("replaced_by", sa.Integer(), nullable=True),
        sa.Column("stated_by", sa.String(), nullable=True),
        sa.Column("stated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_exports_model_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_exports_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_exports"),
    )
    op.create_index("ix_exports_model_id_at_id", "exports", ["model_id", "at", "id"])


def downgrade() -> None:
    op.drop_table("exports")
