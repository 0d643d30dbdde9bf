"""the first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


LEDGER_TRIGGERS = {
    "sqlite": [
        """CREATE TRIGGER ledger_entries_no_update BEFORE UPDATE ON ledger_entries
           BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
        """CREATE TRIGGER ledger_entries_no_delete BEFORE DELETE ON ledger_entries
           BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    ],
    "postgresql": [
        """CREATE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$""",
        """CREATE TRIGGER ledger_entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries
           FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only()""",
    ],
}


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("key_hash", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=True),
        sa.Column("classes", sa.JSON(), nullable=False),
        sa.Column("num_features", sa.Integer(), nullable=False),
        sa.Column("num_slots", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
    )
    op.create_index(op.f("ix_datasets_created_at_id"), "datasets", ["created_at", "id"], unique=False)
    op.create_table(
        "deletion_requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.Column("regulation", sa.String(), nullable=False),
        sa.Column("ground", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("external_id", sa.String(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("extended_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deletion_requests")),
    )
    op.create_index(op.f("ix_deletion_requests_created_at_id"), "deletion_requests", ["created_at", "id"], unique=False)
    op.create_index(op.f("ix_deletion_requests_external_id"), "deletion_requests", ["external_id"], unique=False)
    op.create_index(op.f("ix_deletion_requests_status"), "deletion_requests", ["status"], unique=False)
    op.create_index(op.f("ix_deletion_requests_subject_ref"), "deletion_requests", ["subject_ref"], unique=False)
    op.create_table(
        "erasures",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=True),
        sa.Column("num_records", sa.Integer(), nullable=True),
        sa.Column("num_claimed", sa.Integer(), nullable=False),
        sa.Column("nulled_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_erasures_dataset_id")),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_erasures_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasures")),
        sa.UniqueConstraint("request_id", "dataset_id", name=op.f("uq_erasures_request_id_dataset_id")),
    )
    op.create_index(op.f("ix_erasures_dataset_id_revision"), "erasures", ["dataset_id", "revision"], unique=False)
    op.create_index(
        "ix_erasures_open",
        "erasures",
        ["dataset_id"],
        unique=False,
        sqlite_where=sa.text("nulled_at IS NULL"),
        postgresql_where=sa.text("nulled_at IS NULL"),
    )
    op.create_table(
        "idempotent_answers",
        sa.Column("api_key_id", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("location", sa.String(), nullable=True),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name=op.f("fk_idempotent_answers_api_key_id")),
        sa.PrimaryKeyConstraint("api_key_id", "idempotency_key", name=op.f("pk_idempotent_answers")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("evaluation_dataset_id", sa.String(), nullable=True),
        sa.Column("mechanism", sa.JSON(), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("wanted", sa.String(), nullable=True),
        sa.Column("live_version", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_models_dataset_id")),
        sa.ForeignKeyConstraint(
            ["evaluation_dataset_id"], ["datasets.id"], name=op.f("fk_models_evaluation_dataset_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
    )
    op.create_index(op.f("ix_models_created_at_id"), "models", ["created_at", "id"], unique=False)
    op.create_index(op.f("ix_models_dataset_id"), "models", ["dataset_id"], unique=False)
    op.create_table(
        "records",
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("subject_ref", sa.String(), nullable=True),
        sa.Column("erasure_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_records_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", "slot", name=op.f("pk_records")),
    )
    op.create_index(op.f("ix_records_erasure_id"), "records", ["erasure_id"], unique=False)
    op.create_index(op.f("ix_records_subject_ref_dataset_id"), "records", ["subject_ref", "dataset_id"], unique=False)
    op.create_table(
        "request_events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_request_events_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_request_events")),
    )
    op.create_index(op.f("ix_request_events_request_id"), "request_events", ["request_id"], unique=False)
    op.create_table(
        "certificates",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("jws", sa.Text(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_certificates_model_id")),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_certificates_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_certificates")),
        sa.UniqueConstraint("request_id", "model_id", name=op.f("uq_certificates_request_id_model_id")),
    )
    op.create_index(op.f("ix_certificates_request_id"), "certificates", ["request_id"], unique=False)
    op.create_table(
        "ledger_entries",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_ledger_entries_model_id")),
        sa.PrimaryKeyConstraint("model_id", "sequence", name=op.f("pk_ledger_entries")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("parent_version_id", sa.String(), nullable=True),
        sa.Column("version_id", sa.String(), nullable=False),
        sa.Column("steps_total", sa.Integer(), nullable=False),
        sa.Column("steps_done", sa.Integer(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_runs_dataset_id")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_runs_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_model_id"), "runs", ["model_id"], unique=False)
    op.create_index(op.f("ix_runs_started_at_id"), "runs", ["started_at", "id"], unique=False)
    op.create_index(op.f("ix_runs_status"), "runs", ["status"], unique=False)
    op.create_index(
        "uq_runs_running_dataset",
        "runs",
        ["dataset_id"],
        unique=True,
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_table(
        "request_models",
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("certificate_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_request_models_model_id")),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_request_models_request_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_request_models_run_id")),
        sa.PrimaryKeyConstraint("request_id", "model_id", name=op.f("pk_request_models")),
    )
    op.create_index(op.f("ix_request_models_model_id_status"), "request_models", ["model_id", "status"], unique=False)
    op.create_table(
        "versions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("weights_sha256", sa.String(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_versions_model_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_versions_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_versions")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_versions_model_id_number")),
        sa.UniqueConstraint("run_id", name=op.f("uq_versions_run_id")),
    )
    op.create_index(op.f("ix_versions_status"), "versions", ["status"], unique=False)
    for statement in LEDGER_TRIGGERS[op.get_bind().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    op.drop_index(op.f("ix_versions_status"), table_name="versions")
    op.drop_table("versions")
    op.drop_index(op.f("ix_request_models_model_id_status"), table_name="request_models")
    op.drop_table("request_models")
    op.drop_index(
        "uq_runs_running_dataset",
        table_name="runs",
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.drop_index(op.f("ix_runs_status"), table_name="runs")
    op.drop_index(op.f("ix_runs_started_at_id"), table_name="runs")
    op.drop_index(op.f("ix_runs_model_id"), table_name="runs")
    op.drop_table("runs")
    op.drop_table("ledger_entries")
    op.drop_index(op.f("ix_certificates_request_id"), table_name="certificates")
    op.drop_table("certificates")
    op.drop_index(op.f("ix_request_events_request_id"), table_name="request_events")
    op.drop_table("request_events")
    op.drop_index(op.f("ix_records_subject_ref_dataset_id"), table_name="records")
    op.drop_index(op.f("ix_records_erasure_id"), table_name="records")
    op.drop_table("records")
    op.drop_index(op.f("ix_models_dataset_id"), table_name="models")
    op.drop_index(op.f("ix_models_created_at_id"), table_name="models")
    op.drop_table("models")
    op.drop_table("idempotent_answers")
    op.drop_index(
        "ix_erasures_open",
        table_name="erasures",
        sqlite_where=sa.text("nulled_at IS NULL"),
        postgresql_where=sa.text("nulled_at IS NULL"),
    )
    op.drop_index(op.f("ix_erasures_dataset_id_revision"), table_name="erasures")
    op.drop_table("erasures")
    op.drop_index(op.f("ix_deletion_requests_subject_ref"), table_name="deletion_requests")
    op.drop_index(op.f("ix_deletion_requests_status"), table_name="deletion_requests")
    op.drop_index(op.f("ix_deletion_requests_external_id"), table_name="deletion_requests")
    op.drop_index(op.f("ix_deletion_requests_created_at_id"), table_name="deletion_requests")
    op.drop_table("deletion_requests")
    op.drop_index(op.f("ix_datasets_created_at_id"), table_name="datasets")
    op.drop_table("datasets")
    op.drop_table("api_keys")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION ledger_is_append_only()")
