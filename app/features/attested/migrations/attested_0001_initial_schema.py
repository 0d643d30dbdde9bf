"""The tables of the feature attested in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "attested_0001"
down_revision = None
branch_labels = ("attested",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "trainers",
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
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_trainers_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_trainers"),
    )
    op.create_index("ix_trainers_tenant_id_created_at_id", "trainers", ["tenant_id", "created_at", "id"])
    op.create_table(
        "training_manifests",
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
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_training_manifests_tenant_id"),
        sa.ForeignKeyConstraint(["trainer_id"], ["trainers.id"], name="fk_training_manifests_trainer_id"),
        sa.PrimaryKeyConstraint("id", name="pk_training_manifests"),
        sa.UniqueConstraint("retraining_id", name="uq_training_manifests_retraining_id"),
    )
    op.create_index(
        "ix_training_manifests_trainer_id_rows_read_at", "training_manifests", ["trainer_id", "rows_read_at"]
    )
    op.create_table(
        "trained_artefacts",
        sa.Column("manifest_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["manifest_id"], ["training_manifests.id"], name="fk_trained_artefacts_manifest_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_trained_artefacts_tenant_id"),
        sa.PrimaryKeyConstraint("manifest_id", "sha256", name="pk_trained_artefacts"),
    )
    op.create_index("ix_trained_artefacts_tenant_id_sha256", "trained_artefacts", ["tenant_id", "sha256"])
    op.create_table(
        "trainer_waits",
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("trainer_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("manifest_id", sa.String(), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["manifest_id"], ["training_manifests.id"], name="fk_trainer_waits_manifest_id"),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_trainer_waits_request_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_trainer_waits_tenant_id"),
        sa.ForeignKeyConstraint(["trainer_id"], ["trainers.id"], name="fk_trainer_waits_trainer_id"),
        sa.PrimaryKeyConstraint("request_id", "trainer_id", name="pk_trainer_waits"),
    )
    op.create_index(
        "ix_trainer_waits_trainer_id_status_asked_at", "trainer_waits", ["trainer_id", "status", "asked_at"]
    )
    op.create_index(
        "ix_trainer_waits_open",
        "trainer_waits",
        ["request_id"],
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )


def downgrade() -> None:
    op.drop_table("trainer_waits")
    op.drop_table("trained_artefacts")
    op.drop_table("training_manifests")
    op.drop_table("trainers")
