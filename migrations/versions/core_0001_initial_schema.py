"""The tables of the core in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "core_0001"
down_revision = None
branch_labels = ("core",)
depends_on = None

_APPEND_ONLY = {
    "audit_entries": "the audit log",
    "checkpoints": "what was signed",
    "ledger_entries": "the ledger",
    "ledger_links": "the ledger",
}
"""Tables whose rows are neither changed nor removed, and the name of each in the error."""
_TABLES = (
    "idempotent_answers",
    "installation_identity",
    "tenants",
    "api_keys",
    "audit_entries",
    "checkpoints",
    "datasets",
    "deletion_requests",
    "ledger_links",
    "suppressions",
    "additions",
    "erasures",
    "models",
    "records",
    "request_aliases",
    "request_events",
    "certificates",
    "ledger_entries",
    "runs",
    "request_models",
    "versions",
)
"""The tables, each after those that its foreign keys name."""


def upgrade() -> None:
    op.create_table(
        "idempotent_answers",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("location", sa.String(), nullable=True),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_idempotent_answers"),
    )
    op.create_index("ix_idempotent_answers_created_at", "idempotent_answers", ["created_at"])
    op.create_table(
        "installation_identity",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("check_values", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_installation_identity"),
    )
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("webhook_generation", sa.Integer(), nullable=False),
        sa.Column("webhook_rotated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    op.create_index("ix_tenants_created_at_id", "tenants", ["created_at", "id"])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("key_hash", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("calls_per_minute", sa.Integer(), nullable=True),
        sa.Column("line_id", sa.String(), nullable=True),
        sa.Column("own_requests_only", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_api_keys_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("key_hash", name="uq_api_keys_key_hash"),
    )
    op.create_index("ix_api_keys_tenant_id_created_at_id", "api_keys", ["tenant_id", "created_at", "id"])
    op.create_table(
        "audit_entries",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("object_id", sa.String(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("previous_hash", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_audit_entries_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "sequence", name="pk_audit_entries"),
    )
    op.create_index(
        "ix_audit_entries_tenant_id_object_id_sequence", "audit_entries", ["tenant_id", "object_id", "sequence"]
    )
    op.create_table(
        "checkpoints",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("log", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("jws", sa.Text(), nullable=False),
        sa.Column("signed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_checkpoints_tenant_id"),
        sa.PrimaryKeyConstraint("number", name="pk_checkpoints"),
        sa.UniqueConstraint("tenant_id", "log", "sequence", name="uq_checkpoints_tenant_id_log_sequence"),
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=True),
        sa.Column("network_id", sa.String(), nullable=True),
        sa.Column("subject_kind", sa.String(), nullable=True),
        sa.Column("classes", sa.JSON(), nullable=False),
        sa.Column("target", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("lost_models", sa.JSON(), nullable=False),
        sa.Column("num_features", sa.Integer(), nullable=False),
        sa.Column("num_slots", sa.Integer(), nullable=False),
        sa.Column("num_rows", sa.Integer(), server_default="0", nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("references_check", sa.String(), nullable=True),
        sa.Column("records_verified_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("records_verified_to", sa.Integer(), nullable=True),
        sa.Column("damaged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("damage", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("adaptive_budget", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_datasets_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_datasets"),
    )
    op.create_index(
        "ix_datasets_damaged",
        "datasets",
        ["damaged_at"],
        sqlite_where=sa.text("damaged_at IS NOT NULL"),
        postgresql_where=sa.text("damaged_at IS NOT NULL"),
    )
    op.create_index("ix_datasets_tenant_id_created_at_id", "datasets", ["tenant_id", "created_at", "id"])
    op.create_table(
        "deletion_requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.Column("alias_refs", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("resolution", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("dataset_ids", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("regulation", sa.String(), nullable=False),
        sa.Column("ground", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("external_ref", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("refers_to", sa.String(), nullable=True),
        sa.Column("particulars", sa.LargeBinary(), nullable=True),
        sa.Column("kept", sa.String(), nullable=False),
        sa.Column("maker", sa.String(), nullable=True),
        sa.Column("discreet", sa.Boolean(), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("extended_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("held_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("doubted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unknown_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("alerted", sa.String(), nullable=True),
        sa.Column("rejection_ground", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("assignee", sa.String(), nullable=True),
        sa.Column("erased_by", sa.String(), nullable=True),
        sa.Column("time_zone", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_deletion_requests_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_deletion_requests"),
    )
    op.create_index(
        "ix_deletion_requests_unknown",
        "deletion_requests",
        ["status", "created_at"],
        sqlite_where=sa.text("unknown_at IS NOT NULL"),
        postgresql_where=sa.text("unknown_at IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_completed",
        "deletion_requests",
        ["tenant_id", "completed_at", "submitted_at", "deadline"],
        sqlite_where=sa.text("completed_at IS NOT NULL"),
        postgresql_where=sa.text("completed_at IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_doubted",
        "deletion_requests",
        ["status", "created_at"],
        sqlite_where=sa.text("doubted_at IS NOT NULL"),
        postgresql_where=sa.text("doubted_at IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_held",
        "deletion_requests",
        ["status", "held_until"],
        sqlite_where=sa.text("held_until IS NOT NULL"),
        postgresql_where=sa.text("held_until IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_kept_tenant_id_ended_at",
        "deletion_requests",
        ["kept", "tenant_id", "ended_at"],
        sqlite_where=sa.text("ended_at IS NOT NULL"),
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_open",
        "deletion_requests",
        ["status", "tenant_id", "regulation", "deadline", "created_at", "paused_at", "held_until"],
        sqlite_where=sa.text("status IN ('accepted', 'in_review', 'received', 'running')"),
        postgresql_where=sa.text("status IN ('accepted', 'in_review', 'received', 'running')"),
    )
    op.create_index(
        "ix_deletion_requests_reported",
        "deletion_requests",
        ["tenant_id", "reported_at", "status", "submitted_at", "deadline"],
        sqlite_where=sa.text("reported_at IS NOT NULL"),
        postgresql_where=sa.text("reported_at IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_subject_ref_created_at_id", "deletion_requests", ["subject_ref", "created_at", "id"]
    )
    op.create_index(
        "ix_deletion_requests_tenant_id_assignee_created_at_id",
        "deletion_requests",
        ["tenant_id", "assignee", "created_at", "id"],
        sqlite_where=sa.text("assignee IS NOT NULL"),
        postgresql_where=sa.text("assignee IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_tenant_id_created_at_id", "deletion_requests", ["tenant_id", "created_at", "id"]
    )
    op.create_index(
        "ix_deletion_requests_tenant_id_external_ref_created_at_id",
        "deletion_requests",
        ["tenant_id", "external_ref", "created_at", "id"],
        sqlite_where=sa.text("external_ref IS NOT NULL"),
        postgresql_where=sa.text("external_ref IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_tenant_id_maker_created_at_id",
        "deletion_requests",
        ["tenant_id", "maker", "created_at", "id"],
        sqlite_where=sa.text("maker IS NOT NULL"),
        postgresql_where=sa.text("maker IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_tenant_id_regulation_created_at_id",
        "deletion_requests",
        ["tenant_id", "regulation", "created_at", "id"],
    )
    op.create_index(
        "ix_deletion_requests_tenant_id_source_created_at_id",
        "deletion_requests",
        ["tenant_id", "source", "created_at", "id"],
        sqlite_where=sa.text("source IS NOT NULL"),
        postgresql_where=sa.text("source IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_tenant_id_status_created_at_id",
        "deletion_requests",
        ["tenant_id", "status", "created_at", "id"],
    )
    op.create_index(
        "ix_deletion_requests_tenant_id_submitted_at_id", "deletion_requests", ["tenant_id", "submitted_at", "id"]
    )
    op.create_table(
        "ledger_links",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_ledger_links_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "sequence", name="pk_ledger_links"),
    )
    op.create_table(
        "suppressions",
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_suppressions_tenant_id"),
        sa.PrimaryKeyConstraint("subject_ref", "dataset_id", name="pk_suppressions"),
    )
    op.create_index("ix_suppressions_tenant_id_created_at_id", "suppressions", ["tenant_id", "created_at", "id"])
    op.create_table(
        "additions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("num_records", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("staged", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_additions_dataset_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_additions_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_additions"),
    )
    op.create_index("ix_additions_dataset_id_created_at_id", "additions", ["dataset_id", "created_at", "id"])
    op.create_index("ix_additions_revision", "additions", ["dataset_id", "revision"])
    op.create_index(
        "ix_additions_staged",
        "additions",
        ["dataset_id"],
        sqlite_where=sa.text("staged"),
        postgresql_where=sa.text("staged"),
    )
    op.create_table(
        "erasures",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=True),
        sa.Column("num_records", sa.Integer(), nullable=True),
        sa.Column("num_claimed", sa.Integer(), nullable=False),
        sa.Column("nulled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_erasures_dataset_id"),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_erasures_request_id"),
        sa.PrimaryKeyConstraint("id", name="pk_erasures"),
        sa.UniqueConstraint("request_id", "dataset_id", name="uq_erasures_request_id_dataset_id"),
    )
    op.create_index(
        "ix_erasures_by_deadline",
        "erasures",
        ["dataset_id", "deadline", "ready_at"],
        sqlite_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
        postgresql_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
    )
    op.create_index(
        "ix_erasures_by_readiness",
        "erasures",
        ["dataset_id", "ready_at"],
        sqlite_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
        postgresql_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
    )
    op.create_index(
        "ix_erasures_claimed",
        "erasures",
        ["dataset_id", "revision", "deadline", "ready_at"],
        sqlite_where=sa.text("revision IS NOT NULL"),
        postgresql_where=sa.text("revision IS NOT NULL"),
    )
    op.create_index(
        "ix_erasures_unconfirmed",
        "erasures",
        ["dataset_id", "deadline"],
        sqlite_where=sa.text("num_records IS NOT NULL AND nulled_at IS NULL"),
        postgresql_where=sa.text("num_records IS NOT NULL AND nulled_at IS NULL"),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("evaluation_dataset_id", sa.String(), nullable=True),
        sa.Column("method", sa.String(), server_default="langevin", nullable=False),
        sa.Column("mechanism", sa.JSON(), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("max_requests", sa.Integer(), nullable=True),
        sa.Column("max_wait_seconds", sa.Integer(), server_default="0", nullable=False),
        sa.Column("audit_lanes", sa.Integer(), server_default="256", nullable=False),
        sa.Column("audit_chains", sa.Integer(), server_default="16", nullable=False),
        sa.Column("audit_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("quality", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("lost_releases", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("wanted", sa.String(), nullable=True),
        sa.Column("live_version", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_models_dataset_id"),
        sa.ForeignKeyConstraint(["evaluation_dataset_id"], ["datasets.id"], name="fk_models_evaluation_dataset_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_models_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
    )
    op.create_index("ix_models_dataset_id", "models", ["dataset_id"])
    op.create_index("ix_models_tenant_id_created_at_id", "models", ["tenant_id", "created_at", "id"])
    op.create_table(
        "records",
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("subject_ref", sa.String(), nullable=True),
        sa.Column("erasure_id", sa.String(), nullable=True),
        sa.Column("addition_id", sa.String(), nullable=True),
        sa.Column("check_value", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_records_dataset_id"),
        sa.PrimaryKeyConstraint("dataset_id", "slot", name="pk_records"),
    )
    op.create_index(
        "ix_records_added",
        "records",
        ["addition_id", "slot"],
        sqlite_where=sa.text("addition_id IS NOT NULL"),
        postgresql_where=sa.text("addition_id IS NOT NULL"),
    )
    op.create_index("ix_records_erasure_id", "records", ["erasure_id"])
    op.create_index("ix_records_subject_ref_dataset_id", "records", ["subject_ref", "dataset_id"])
    op.create_table(
        "request_aliases",
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_request_aliases_request_id"),
        sa.PrimaryKeyConstraint("request_id", "subject_ref", name="pk_request_aliases"),
    )
    op.create_index("ix_request_aliases_subject_ref", "request_aliases", ["subject_ref"])
    op.create_table(
        "request_events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_request_events_request_id"),
        sa.PrimaryKeyConstraint("id", name="pk_request_events"),
    )
    op.create_index("ix_request_events_request_id", "request_events", ["request_id"])
    op.create_table(
        "certificates",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("jws", sa.Text(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_certificates_model_id"),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_certificates_request_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_certificates_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_certificates"),
        sa.UniqueConstraint("request_id", "model_id", name="uq_certificates_request_id_model_id"),
    )
    op.create_index("ix_certificates_request_id", "certificates", ["request_id"])
    op.create_table(
        "ledger_entries",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_ledger_entries_model_id"),
        sa.PrimaryKeyConstraint("model_id", "sequence", name="pk_ledger_entries"),
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
        sa.Column("first_step", sa.Integer(), server_default="0", nullable=False),
        sa.Column("steps_total", sa.Integer(), nullable=False),
        sa.Column("steps_done", sa.Integer(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("reason_facts", sa.JSON(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("audit", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("repeated", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name="fk_runs_dataset_id"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_runs_model_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_runs_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index(
        "ix_runs_cut_off",
        "runs",
        ["dataset_id", "finished_at"],
        sqlite_where=sa.text("status IN ('abandoned', 'cancelled', 'failed')"),
        postgresql_where=sa.text("status IN ('abandoned', 'cancelled', 'failed')"),
    )
    op.create_index("ix_runs_model_id_started_at_id", "runs", ["model_id", "started_at", "id"])
    op.create_index("ix_runs_started_at_id", "runs", ["started_at", "id"])
    op.create_index("ix_runs_status", "runs", ["status"])
    op.create_index("ix_runs_tenant_id_started_at_id", "runs", ["tenant_id", "started_at", "id"])
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
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_request_models_model_id"),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name="fk_request_models_request_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_request_models_run_id"),
        sa.PrimaryKeyConstraint("request_id", "model_id", name="pk_request_models"),
    )
    op.create_index(
        "ix_request_models_model_id_requested_at_request_id",
        "request_models",
        ["model_id", "requested_at", "request_id"],
    )
    op.create_index(
        "ix_request_models_owed",
        "request_models",
        ["model_id", "status"],
        sqlite_where=sa.text("status IN ('pending', 'running')"),
        postgresql_where=sa.text("status IN ('pending', 'running')"),
    )
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
        sa.Column("degraded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("held", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_versions_model_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_versions_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_versions"),
        sa.UniqueConstraint("model_id", "number", name="uq_versions_model_id_number"),
        sa.UniqueConstraint("run_id", name="uq_versions_run_id"),
    )
    op.create_index("ix_versions_status", "versions", ["status"])
    dialect = op.get_bind().dialect.name
    for table, name in _APPEND_ONLY.items():
        for statement in _append_only_triggers(dialect, table, name):
            op.execute(statement)
    for statement in _queue_triggers(dialect):
        op.execute(statement)


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        for table in _APPEND_ONLY:
            op.execute(f"DROP FUNCTION {table}_is_append_only")
        op.execute("DROP FUNCTION deletion_requests_queue")


def _append_only_triggers(dialect: str, table: str, name: str) -> list[str]:
    """Return the statements that make the database refuse to change or remove a row of `table`."""
    if dialect == "sqlite":
        return [
            f"""CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table}
                BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END"""
            for change in ("UPDATE", "DELETE")
        ]
    return [
        f"""CREATE FUNCTION {table}_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION '{name} is append-only'; END $$""",
        f"""CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION {table}_is_append_only()""",
    ]


def _queue_triggers(dialect: str) -> list[str]:
    """Return the statements that copy a request's deadline, and the time from which it may be claimed, to its
    erasures."""

    def ready_at(row: str) -> str:
        may = f"{row}.status IN ('accepted', 'running', 'completed')"
        return f"CASE WHEN {may} THEN coalesce({row}.held_until, {row}.created_at) END"

    place = f"deadline = NEW.deadline, ready_at = {ready_at('NEW')}"
    follow = f"UPDATE erasures SET {place} WHERE request_id = NEW.id"  # noqa: S608  two constants
    trigger = "CREATE TRIGGER deletion_requests_queue AFTER UPDATE OF status, deadline, held_until, created_at"
    trigger += " ON deletion_requests FOR EACH ROW WHEN"
    if dialect == "sqlite":
        changed = f"OLD.deadline IS NOT NEW.deadline OR ({ready_at('OLD')}) IS NOT ({ready_at('NEW')})"
        return [f"{trigger} {changed} BEGIN {follow}; END"]
    changed = f"OLD.deadline <> NEW.deadline OR {ready_at('OLD')} IS DISTINCT FROM {ready_at('NEW')}"
    return [
        f"""CREATE FUNCTION deletion_requests_queue() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN {follow}; RETURN NULL; END $$""",
        f"{trigger} ({changed}) EXECUTE FUNCTION deletion_requests_queue()",
    ]
