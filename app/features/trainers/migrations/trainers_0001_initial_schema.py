"""Tables of the `trainers` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "trainers_0001"
down_revision = None
branch_labels = ("trainers",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "training_tables",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("subject_column", sa.String(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_training_tables_dataset_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_training_tables_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_training_tables"),
        sa.UniqueConstraint("dataset_id", name="uq_training_tables_dataset_id"),
    )
    op.create_index("ix_training_tables_tenant_id_created_at_id", "training_tables", ["tenant_id", "created_at", "id"])
    op.create_table(
        "training_table_blocks",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("num_rows", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["training_tables.id"], name="fk_training_table_blocks_table_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_training_table_blocks_tenant_id"),
        sa.PrimaryKeyConstraint("table_id", "number", name="pk_training_table_blocks"),
    )
    op.create_table(
        "trainers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("specification", sa.JSON(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("lock_sha256", sa.String(), nullable=False),
        sa.Column("live_id", sa.String(), nullable=True),
        sa.Column("live_revision", sa.Integer(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["training_tables.id"], name="fk_trainers_table_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_trainers_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_trainers"),
    )
    op.create_index("ix_trainers_table_id", "trainers", ["table_id"])
    op.create_index("ix_trainers_tenant_id_created_at_id", "trainers", ["tenant_id", "created_at", "id"])
    op.create_table(
        "trainings",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("trainer_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("repeated", sa.Boolean(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("findings", sa.JSON(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_trainings_tenant_id"),
        sa.ForeignKeyConstraint(["trainer_id"], ["trainers.id"], name="fk_trainings_trainer_id"),
        sa.PrimaryKeyConstraint("id", name="pk_trainings"),
    )
    op.create_index(
        "ix_trainings_running",
        "trainings",
        ["trainer_id"],
        unique=True,
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index("ix_trainings_trainer_id_started_at_id", "trainings", ["trainer_id", "started_at", "id"])
    op.create_table(
        "training_artefacts",
        sa.Column("training_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_training_artefacts_tenant_id"),
        sa.ForeignKeyConstraint(["training_id"], ["trainings.id"], name="fk_training_artefacts_training_id"),
        sa.PrimaryKeyConstraint("training_id", "name", name="pk_training_artefacts"),
    )
    op.create_table(
        "retired_training_keys",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("table_id", sa.String(), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_retired_training_keys_tenant_id"),
        sa.PrimaryKeyConstraint("key", name="pk_retired_training_keys"),
    )


def downgrade() -> None:
    op.drop_table("retired_training_keys")
    op.drop_table("training_artefacts")
    op.drop_table("trainings")
    op.drop_table("trainers")
    op.drop_table("training_table_blocks")
    op.drop_table("training_tables")
