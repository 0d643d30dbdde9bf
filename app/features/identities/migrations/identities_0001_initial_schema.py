"""Tables of the `identities` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "identities_0001"
down_revision = None
branch_labels = ("identities",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "identities",
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_identities_tenant_id"),
        sa.PrimaryKeyConstraint("subject_ref", name="pk_identities"),
    )
    op.create_index("ix_identities_person", "identities", ["person"])
    op.create_index("ix_identities_tenant_id_kind", "identities", ["tenant_id", "kind"])
    op.create_table(
        "identity_kinds",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_identity_kinds_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "name", name="pk_identity_kinds"),
    )


def downgrade() -> None:
    op.drop_table("identity_kinds")
    op.drop_table("identities")
