"""Tables of the `networks` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "networks_0001"
down_revision = None
branch_labels = ("networks",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "networks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("licence", sa.String(), nullable=False),
        sa.Column("provenance", sa.String(), nullable=False),
        sa.Column("dp_ledger", sa.String(), nullable=True),
        sa.Column("opset", sa.Integer(), nullable=False),
        sa.Column("input_shape", sa.JSON(), nullable=False),
        sa.Column("output_size", sa.Integer(), nullable=False),
        sa.Column("num_parameters", sa.BigInteger(), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("operators", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_networks_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_networks"),
        sa.UniqueConstraint("tenant_id", "sha256", name="uq_networks_tenant_id_sha256"),
    )
    op.create_index("ix_networks_tenant_id_created_at_id", "networks", ["tenant_id", "created_at", "id"])
    op.create_table(
        "network_pieces",
        sa.Column("network_id", sa.String(), nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_network_pieces_network_id"),
        sa.PrimaryKeyConstraint("network_id", "place", name="pk_network_pieces"),
    )


def downgrade() -> None:
    op.drop_table("network_pieces")
    op.drop_table("networks")
