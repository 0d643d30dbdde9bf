"""Tables of the `drop` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "drop_0001"
down_revision = None
branch_labels = ("drop",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drop_files",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("num_lines", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_drop_files_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "name", name="pk_drop_files"),
    )
    op.create_table(
        "drop_lines",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("line_id", sa.String(), nullable=False),
        sa.Column("file", sa.String(), nullable=True),
        sa.Column("hash_ref", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("opted_out_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_drop_lines_request_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_drop_lines_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "line_id", name="pk_drop_lines"),
    )
    op.create_index("ix_drop_lines_hash_ref", "drop_lines", ["hash_ref"])
    op.create_index("ix_drop_lines_tenant_id_file_line_id", "drop_lines", ["tenant_id", "file", "line_id"])
    op.create_table(
        "drop_hashes",
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.Column("list_type", sa.String(), nullable=False),
        sa.Column("hash_ref", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_drop_hashes_tenant_id"),
        sa.PrimaryKeyConstraint("subject_ref", "list_type", "hash_ref", name="pk_drop_hashes"),
    )
    op.create_index("ix_drop_hashes_hash_ref", "drop_hashes", ["hash_ref"])
    op.create_index("ix_drop_hashes_tenant_id_list_type", "drop_hashes", ["tenant_id", "list_type"])


def downgrade() -> None:
    for table in ("drop_hashes", "drop_lines", "drop_files"):
        op.drop_table(table)
