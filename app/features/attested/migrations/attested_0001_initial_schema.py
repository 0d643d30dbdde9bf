"""Tables of the `attested` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "attested_0001"
down_revision = None
branch_labels = ("attested",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attested_trainers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("address", sa.LargeBinary(), nullable=True),
        sa.Column("public_key", sa.String(), nullable=False),
        sa.Column("dataset_ids", sa.JSON(), nullable=True),
        sa.Column("lead_days", sa.Integer(), nullable=False),
        sa.Column("retraining_id", sa.String(), nullable=False),
        sa.Column("announced", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("restored_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_attested_trainers_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_attested_trainers"),
    )
    op.create_index(
        "ix_attested_trainers_tenant_id_created_at_id", "attested_trainers", ["tenant_id", "created_at", "id"]
    )
    op.create_table(
        "attested_manifests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("trainer_id", sa.String(), nullable=False),
        sa.Column("retraining_id", sa.String(), nullable=False),
        sa.Column("public_key", sa.String(), nullable=False),
        sa.Column("jws", sa.Text(), nullable=False),
        sa.Column("identifiers_sha256", sa.String(), nullable=False),
        sa.Column("num_identifiers", sa.Integer(), nullable=False),
        sa.Column("artefacts", sa.JSON(), nullable=False),
        sa.Column("rows_read_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("num_served", sa.Integer(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_attested_manifests_tenant_id"),
        sa.ForeignKeyConstraint(["trainer_id"], ["attested_trainers.id"], name="fk_attested_manifests_trainer_id"),
        sa.PrimaryKeyConstraint("id", name="pk_attested_manifests"),
        sa.UniqueConstraint("retraining_id", name="uq_attested_manifests_retraining_id"),
    )
    op.create_index(
        "ix_attested_manifests_trainer_id_rows_read_at", "attested_manifests", ["trainer_id", "rows_read_at"]
    )
    op.create_table(
        "attested_artefacts",
        sa.Column("manifest_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["manifest_id"], ["attested_manifests.id"], name="fk_attested_artefacts_manifest_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_attested_artefacts_tenant_id"),
        sa.PrimaryKeyConstraint("manifest_id", "sha256", name="pk_attested_artefacts"),
    )
    op.create_index("ix_attested_artefacts_tenant_id_sha256", "attested_artefacts", ["tenant_id", "sha256"])
    op.create_table(
        "attested_waits",
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("trainer_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("manifest_id", sa.String(), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["manifest_id"], ["attested_manifests.id"], name="fk_attested_waits_manifest_id"),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_attested_waits_request_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_attested_waits_tenant_id"),
        sa.ForeignKeyConstraint(["trainer_id"], ["attested_trainers.id"], name="fk_attested_waits_trainer_id"),
        sa.PrimaryKeyConstraint("request_id", "trainer_id", name="pk_attested_waits"),
    )
    op.create_index(
        "ix_attested_waits_trainer_id_status_asked_at", "attested_waits", ["trainer_id", "status", "asked_at"]
    )
    op.create_index(
        "ix_attested_waits_open",
        "attested_waits",
        ["request_id"],
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )


def downgrade() -> None:
    op.drop_table("attested_waits")
    op.drop_table("attested_artefacts")
    op.drop_table("attested_manifests")
    op.drop_table("attested_trainers")
