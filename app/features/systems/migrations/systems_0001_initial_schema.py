"""Tables of the `systems` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "systems_0001"
down_revision = None
branch_labels = ("systems",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "systems",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("address", sa.LargeBinary(), nullable=True),
        sa.Column("public_key", sa.String(), nullable=True),
        sa.Column("api_key_id", sa.String(), nullable=True),
        sa.Column("dataset_ids", sa.JSON(), nullable=True),
        sa.Column("identifier_kinds", sa.JSON(), nullable=False),
        sa.Column("map_complete_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("parents", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name="fk_systems_api_key_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_systems_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_systems"),
    )
    op.create_index("ix_systems_tenant_id_created_at_id", "systems", ["tenant_id", "created_at", "id"])
    op.create_table(
        "system_tasks",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("system_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reminded", sa.String(), nullable=True),
        sa.Column("reminded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("confirmed_by", sa.String(), nullable=True),
        sa.Column("evidence_sha256", sa.String(), nullable=True),
        sa.Column("public_key", sa.String(), nullable=True),
        sa.Column("jws", sa.Text(), nullable=True),
        sa.Column("acknowledged_with", sa.String(), nullable=True),
        sa.Column("note", sa.LargeBinary(), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_system_tasks_request_id"),
        sa.ForeignKeyConstraint(["system_id"], ["systems.id"], name="fk_system_tasks_system_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_system_tasks_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_system_tasks"),
        sa.UniqueConstraint("request_id", "system_id", name="uq_system_tasks_request_id_system_id"),
    )
    op.create_index("ix_system_tasks_tenant_id_opened_at_id", "system_tasks", ["tenant_id", "opened_at", "id"])
    op.create_index(
        "ix_system_tasks_open",
        "system_tasks",
        ["request_id"],
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )


def downgrade() -> None:
    op.drop_table("system_tasks")
    op.drop_table("systems")
