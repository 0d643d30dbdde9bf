"""The first tables.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_APPEND_ONLY = {"ledger_entries": "the ledger", "audit_entries": "the audit log", "audit_checkpoints": "the audit log"}


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("webhook_generation", sa.Integer(), nullable=False),
        sa.Column("webhook_rotated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
        sa.UniqueConstraint("name", name=op.f("uq_tenants_name")),
    )
    op.create_index(op.f("ix_tenants_created_at_id"), "tenants", ["created_at", "id"], unique=False)
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("key_hash", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("calls_per_minute", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_api_keys_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    op.create_index(
        op.f("ix_api_keys_tenant_id_created_at_id"), "api_keys", ["tenant_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "audit_checkpoints",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("jws", sa.Text(), nullable=False),
        sa.Column("signed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_audit_checkpoints_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "sequence", name=op.f("pk_audit_checkpoints")),
    )
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
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_audit_entries_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "sequence", name=op.f("pk_audit_entries")),
    )
    op.create_index(
        op.f("ix_audit_entries_tenant_id_object_id_sequence"),
        "audit_entries",
        ["tenant_id", "object_id", "sequence"],
        unique=False,
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=True),
        sa.Column("classes", sa.JSON(), nullable=False),
        sa.Column("lost_models", sa.JSON(), nullable=False),
        sa.Column("num_features", sa.Integer(), nullable=False),
        sa.Column("num_slots", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_datasets_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
    )
    op.create_index(
        op.f("ix_datasets_tenant_id_created_at_id"), "datasets", ["tenant_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "deletion_requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.Column("dataset_ids", sa.JSON(), nullable=True),
        sa.Column("regulation", sa.String(), nullable=False),
        sa.Column("ground", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("external_ref", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("refers_to", sa.String(), nullable=True),
        sa.Column("particulars", sa.LargeBinary(), nullable=True),
        sa.Column("kept", sa.String(), nullable=False),
        sa.Column("discreet", sa.Boolean(), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("extended_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("held_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("alerted", sa.String(), nullable=True),
        sa.Column("rejection_ground", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_deletion_requests_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deletion_requests")),
    )
    op.create_index(
        "ix_deletion_requests_held",
        "deletion_requests",
        ["status", "held_until"],
        unique=False,
        sqlite_where=sa.text("held_until IS NOT NULL"),
        postgresql_where=sa.text("held_until IS NOT NULL"),
    )
    op.create_index(
        "ix_deletion_requests_open",
        "deletion_requests",
        ["status", "tenant_id", "regulation", "deadline", "created_at", "paused_at", "held_until"],
        unique=False,
        sqlite_where=sa.text("status IN ('accepted', 'in_review', 'received', 'running')"),
        postgresql_where=sa.text("status IN ('accepted', 'in_review', 'received', 'running')"),
    )
    op.create_index(
        op.f("ix_deletion_requests_subject_ref_created_at_id"),
        "deletion_requests",
        ["subject_ref", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_deletion_requests_tenant_id_created_at_id"),
        "deletion_requests",
        ["tenant_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_deletion_requests_tenant_id_external_ref_created_at_id"),
        "deletion_requests",
        ["tenant_id", "external_ref", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("external_ref IS NOT NULL"),
        postgresql_where=sa.text("external_ref IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_deletion_requests_kept_tenant_id_ended_at"),
        "deletion_requests",
        ["kept", "tenant_id", "ended_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NOT NULL"),
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_deletion_requests_tenant_id_regulation_created_at_id"),
        "deletion_requests",
        ["tenant_id", "regulation", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_deletion_requests_tenant_id_reported_at"),
        "deletion_requests",
        ["tenant_id", "reported_at"],
        unique=False,
        sqlite_where=sa.text("reported_at IS NOT NULL"),
        postgresql_where=sa.text("reported_at IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_deletion_requests_tenant_id_source_created_at_id"),
        "deletion_requests",
        ["tenant_id", "source", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("source IS NOT NULL"),
        postgresql_where=sa.text("source IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_deletion_requests_tenant_id_status_created_at_id"),
        "deletion_requests",
        ["tenant_id", "status", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "identity_issuers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("audience", sa.String(), nullable=False),
        sa.Column("jwks", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_identity_issuers_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identity_issuers")),
        sa.UniqueConstraint("tenant_id", "issuer", name=op.f("uq_identity_issuers_tenant_id_issuer")),
    )
    op.create_table(
        "leaving_counts",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("week", sa.DateTime(timezone=True), nullable=False),
        sa.Column("odds", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("answer", sa.String(), nullable=False),
        sa.Column("num_sent", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_leaving_counts_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "week", "odds", "answer", name=op.f("pk_leaving_counts")),
    )
    op.create_table(
        "suppressions",
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_suppressions_tenant_id")),
        sa.PrimaryKeyConstraint("subject_ref", "dataset_id", name=op.f("pk_suppressions")),
    )
    op.create_index(
        op.f("ix_suppressions_tenant_id_created_at_id"), "suppressions", ["tenant_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("receiver_ref", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("letter", sa.LargeBinary(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_webhook_deliveries_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        "ix_webhook_deliveries_pending",
        "webhook_deliveries",
        ["next_attempt_at"],
        unique=False,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(op.f("ix_webhook_deliveries_ended_at"), "webhook_deliveries", ["ended_at"], unique=False)
    op.create_index(op.f("ix_webhook_deliveries_request_id"), "webhook_deliveries", ["request_id"], unique=False)
    op.create_index(
        op.f("ix_webhook_deliveries_tenant_id_created_at_id"),
        "webhook_deliveries",
        ["tenant_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_webhook_deliveries_tenant_id_status_created_at_id"),
        "webhook_deliveries",
        ["tenant_id", "status", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "agents",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("verify_key", sa.String(), nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=True),
        sa.Column("set_up_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name=op.f("fk_agents_api_key_id")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_agents_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
        sa.UniqueConstraint("agent_id", "tenant_id", name=op.f("uq_agents_agent_id_tenant_id")),
    )
    op.create_index(
        op.f("ix_agents_tenant_id_created_at_id"), "agents", ["tenant_id", "created_at", "id"], unique=False
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
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_erasures_dataset_id")),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_erasures_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasures")),
        sa.UniqueConstraint("request_id", "dataset_id", name=op.f("uq_erasures_request_id_dataset_id")),
    )
    op.create_index(
        "ix_erasures_claimed",
        "erasures",
        ["dataset_id", "revision", "deadline", "ready_at"],
        unique=False,
        sqlite_where=sa.text("revision IS NOT NULL"),
        postgresql_where=sa.text("revision IS NOT NULL"),
    )
    op.create_index(
        "ix_erasures_by_deadline",
        "erasures",
        ["dataset_id", "deadline", "ready_at"],
        unique=False,
        sqlite_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
        postgresql_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
    )
    op.create_index(
        "ix_erasures_by_readiness",
        "erasures",
        ["dataset_id", "ready_at"],
        unique=False,
        sqlite_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
        postgresql_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
    )
    op.create_index(
        "ix_erasures_unconfirmed",
        "erasures",
        ["dataset_id", "deadline"],
        unique=False,
        sqlite_where=sa.text("num_records IS NOT NULL AND nulled_at IS NULL"),
        postgresql_where=sa.text("num_records IS NOT NULL AND nulled_at IS NULL"),
    )
    op.create_table(
        "dashboard_sessions",
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_keys.id"], name=op.f("fk_dashboard_sessions_api_key_id")),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_dashboard_sessions")),
    )
    op.create_index(op.f("ix_dashboard_sessions_expires_at"), "dashboard_sessions", ["expires_at"], unique=False)
    op.create_index(op.f("ix_dashboard_sessions_seen_at"), "dashboard_sessions", ["seen_at"], unique=False)
    op.create_table(
        "idempotent_answers",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("location", sa.String(), nullable=True),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_idempotent_answers")),
    )
    op.create_index(op.f("ix_idempotent_answers_created_at"), "idempotent_answers", ["created_at"], unique=False)
    op.create_table(
        "models",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("evaluation_dataset_id", sa.String(), nullable=True),
        sa.Column("mechanism", sa.JSON(), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("ranks", sa.Integer(), server_default="1", nullable=False),
        sa.Column("max_requests", sa.Integer(), nullable=True),
        sa.Column("max_wait_seconds", sa.Integer(), server_default="0", nullable=False),
        sa.Column("audit_lanes", sa.Integer(), server_default="256", nullable=False),
        sa.Column("audit_chains", sa.Integer(), server_default="16", nullable=False),
        sa.Column("audit_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lost_releases", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("wanted", sa.String(), nullable=True),
        sa.Column("live_version", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_models_dataset_id")),
        sa.ForeignKeyConstraint(
            ["evaluation_dataset_id"], ["datasets.id"], name=op.f("fk_models_evaluation_dataset_id")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_models_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
    )
    op.create_index(op.f("ix_models_dataset_id"), "models", ["dataset_id"], unique=False)
    op.create_index(
        op.f("ix_models_tenant_id_created_at_id"), "models", ["tenant_id", "created_at", "id"], unique=False
    )
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
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_additions_dataset_id")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_additions_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_additions")),
    )
    op.create_index(
        op.f("ix_additions_dataset_id_created_at_id"), "additions", ["dataset_id", "created_at", "id"], unique=False
    )
    op.create_index("ix_additions_revision", "additions", ["dataset_id", "revision"], unique=False)
    op.create_index(
        "ix_additions_staged",
        "additions",
        ["dataset_id"],
        unique=False,
        sqlite_where=sa.text("staged"),
        postgresql_where=sa.text("staged"),
    )
    op.create_table(
        "records",
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("subject_ref", sa.String(), nullable=True),
        sa.Column("erasure_id", sa.String(), nullable=True),
        sa.Column("addition_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_records_dataset_id")),
        sa.PrimaryKeyConstraint("dataset_id", "slot", name=op.f("pk_records")),
    )
    op.create_index(
        "ix_records_added",
        "records",
        ["addition_id", "slot"],
        unique=False,
        sqlite_where=sa.text("addition_id IS NOT NULL"),
        postgresql_where=sa.text("addition_id IS NOT NULL"),
    )
    op.create_index(op.f("ix_records_erasure_id"), "records", ["erasure_id"], unique=False)
    op.create_index(op.f("ix_records_subject_ref_dataset_id"), "records", ["subject_ref", "dataset_id"], unique=False)
    op.create_table(
        "request_events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_request_events_request_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_request_events")),
    )
    op.create_index(op.f("ix_request_events_request_id"), "request_events", ["request_id"], unique=False)
    op.create_table(
        "used_statements",
        sa.Column("issuer_id", sa.String(), nullable=False),
        sa.Column("statement_hash", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["issuer_id"], ["identity_issuers.id"], name=op.f("fk_used_statements_issuer_id")),
        sa.PrimaryKeyConstraint("issuer_id", "statement_hash", name=op.f("pk_used_statements")),
    )
    op.create_index(op.f("ix_used_statements_expires_at"), "used_statements", ["expires_at"], unique=False)
    op.create_table(
        "certificates",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("jws", sa.Text(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_certificates_model_id")),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_certificates_request_id")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_certificates_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_certificates")),
        sa.UniqueConstraint("request_id", "model_id", name=op.f("uq_certificates_request_id_model_id")),
    )
    op.create_index(op.f("ix_certificates_request_id"), "certificates", ["request_id"], unique=False)
    op.create_table(
        "exports",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_exports_model_id")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_exports_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exports")),
    )
    op.create_index(op.f("ix_exports_model_id_at_id"), "exports", ["model_id", "at", "id"], unique=False)
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
        sa.Column("audit", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_runs_dataset_id")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_runs_model_id")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_runs_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_model_id_started_at_id"), "runs", ["model_id", "started_at", "id"], unique=False)
    op.create_index(op.f("ix_runs_started_at_id"), "runs", ["started_at", "id"], unique=False)
    op.create_index(op.f("ix_runs_status"), "runs", ["status"], unique=False)
    op.create_index(op.f("ix_runs_tenant_id_started_at_id"), "runs", ["tenant_id", "started_at", "id"], unique=False)
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
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_request_models_model_id")),
        sa.ForeignKeyConstraint(["request_id"], ["deletion_requests.id"], name=op.f("fk_request_models_request_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_request_models_run_id")),
        sa.PrimaryKeyConstraint("request_id", "model_id", name=op.f("pk_request_models")),
    )
    op.create_index(
        op.f("ix_request_models_model_id_requested_at_request_id"),
        "request_models",
        ["model_id", "requested_at", "request_id"],
        unique=False,
    )
    op.create_index(
        "ix_request_models_owed",
        "request_models",
        ["model_id", "status"],
        unique=False,
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
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_versions_model_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_versions_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_versions")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_versions_model_id_number")),
        sa.UniqueConstraint("run_id", name=op.f("uq_versions_run_id")),
    )
    op.create_index(op.f("ix_versions_status"), "versions", ["status"], unique=False)
    for table, what in _APPEND_ONLY.items():
        for statement in _triggers(op.get_bind().dialect.name, table, what):
            op.execute(statement)
    for statement in _queue(op.get_bind().dialect.name):
        op.execute(statement)


def downgrade() -> None:
    postgresql = op.get_bind().dialect.name == "postgresql"
    if postgresql:
        for table in _APPEND_ONLY:
            op.execute(f"DROP TRIGGER {table}_append_only ON {table}")
            op.execute(f"DROP FUNCTION {table}_is_append_only")
        op.execute("DROP TRIGGER deletion_requests_queue ON deletion_requests")
        op.execute("DROP FUNCTION deletion_requests_queue")
    op.drop_index(op.f("ix_versions_status"), table_name="versions")
    op.drop_table("versions")
    op.drop_index(
        "ix_request_models_owed",
        table_name="request_models",
        sqlite_where=sa.text("status IN ('pending', 'running')"),
        postgresql_where=sa.text("status IN ('pending', 'running')"),
    )
    op.drop_index(op.f("ix_request_models_model_id_requested_at_request_id"), table_name="request_models")
    op.drop_table("request_models")
    op.drop_index(
        "uq_runs_running_dataset",
        table_name="runs",
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.drop_index(op.f("ix_runs_tenant_id_started_at_id"), table_name="runs")
    op.drop_index(op.f("ix_runs_status"), table_name="runs")
    op.drop_index(op.f("ix_runs_started_at_id"), table_name="runs")
    op.drop_index(op.f("ix_runs_model_id_started_at_id"), table_name="runs")
    op.drop_table("runs")
    op.drop_table("ledger_entries")
    op.drop_index(op.f("ix_exports_model_id_at_id"), table_name="exports")
    op.drop_table("exports")
    op.drop_index(op.f("ix_certificates_request_id"), table_name="certificates")
    op.drop_table("certificates")
    op.drop_index(op.f("ix_used_statements_expires_at"), table_name="used_statements")
    op.drop_table("used_statements")
    op.drop_index(op.f("ix_request_events_request_id"), table_name="request_events")
    op.drop_table("request_events")
    op.drop_index(op.f("ix_records_subject_ref_dataset_id"), table_name="records")
    op.drop_index(op.f("ix_records_erasure_id"), table_name="records")
    op.drop_index(
        "ix_records_added",
        table_name="records",
        sqlite_where=sa.text("addition_id IS NOT NULL"),
        postgresql_where=sa.text("addition_id IS NOT NULL"),
    )
    op.drop_table("records")
    op.drop_index(
        "ix_additions_staged",
        table_name="additions",
        sqlite_where=sa.text("staged"),
        postgresql_where=sa.text("staged"),
    )
    op.drop_index("ix_additions_revision", table_name="additions")
    op.drop_index(op.f("ix_additions_dataset_id_created_at_id"), table_name="additions")
    op.drop_table("additions")
    op.drop_index(op.f("ix_models_tenant_id_created_at_id"), table_name="models")
    op.drop_index(op.f("ix_models_dataset_id"), table_name="models")
    op.drop_table("models")
    op.drop_index(op.f("ix_idempotent_answers_created_at"), table_name="idempotent_answers")
    op.drop_table("idempotent_answers")
    op.drop_index(op.f("ix_dashboard_sessions_seen_at"), table_name="dashboard_sessions")
    op.drop_index(op.f("ix_dashboard_sessions_expires_at"), table_name="dashboard_sessions")
    op.drop_table("dashboard_sessions")
    op.drop_index(
        "ix_erasures_unconfirmed",
        table_name="erasures",
        sqlite_where=sa.text("num_records IS NOT NULL AND nulled_at IS NULL"),
        postgresql_where=sa.text("num_records IS NOT NULL AND nulled_at IS NULL"),
    )
    op.drop_index(
        "ix_erasures_by_readiness",
        table_name="erasures",
        sqlite_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
        postgresql_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
    )
    op.drop_index(
        "ix_erasures_by_deadline",
        table_name="erasures",
        sqlite_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
        postgresql_where=sa.text("revision IS NULL AND ready_at IS NOT NULL"),
    )
    op.drop_index(
        "ix_erasures_claimed",
        table_name="erasures",
        sqlite_where=sa.text("revision IS NOT NULL"),
        postgresql_where=sa.text("revision IS NOT NULL"),
    )
    op.drop_table("erasures")
    op.drop_index(op.f("ix_agents_tenant_id_created_at_id"), table_name="agents")
    op.drop_table("agents")
    op.drop_index(op.f("ix_webhook_deliveries_tenant_id_status_created_at_id"), table_name="webhook_deliveries")
    op.drop_index(op.f("ix_webhook_deliveries_tenant_id_created_at_id"), table_name="webhook_deliveries")
    op.drop_index(op.f("ix_webhook_deliveries_request_id"), table_name="webhook_deliveries")
    op.drop_index(op.f("ix_webhook_deliveries_ended_at"), table_name="webhook_deliveries")
    op.drop_index(
        "ix_webhook_deliveries_pending",
        table_name="webhook_deliveries",
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.drop_table("webhook_deliveries")
    op.drop_index(op.f("ix_suppressions_tenant_id_created_at_id"), table_name="suppressions")
    op.drop_table("suppressions")
    op.drop_table("leaving_counts")
    op.drop_table("identity_issuers")
    op.drop_index(op.f("ix_deletion_requests_tenant_id_status_created_at_id"), table_name="deletion_requests")
    op.drop_index(op.f("ix_deletion_requests_tenant_id_regulation_created_at_id"), table_name="deletion_requests")
    op.drop_index(
        op.f("ix_deletion_requests_tenant_id_reported_at"),
        table_name="deletion_requests",
        sqlite_where=sa.text("reported_at IS NOT NULL"),
        postgresql_where=sa.text("reported_at IS NOT NULL"),
    )
    op.drop_index(
        op.f("ix_deletion_requests_tenant_id_source_created_at_id"),
        table_name="deletion_requests",
        sqlite_where=sa.text("source IS NOT NULL"),
        postgresql_where=sa.text("source IS NOT NULL"),
    )
    op.drop_index(
        op.f("ix_deletion_requests_tenant_id_external_ref_created_at_id"),
        table_name="deletion_requests",
        sqlite_where=sa.text("external_ref IS NOT NULL"),
        postgresql_where=sa.text("external_ref IS NOT NULL"),
    )
    op.drop_index(op.f("ix_deletion_requests_tenant_id_created_at_id"), table_name="deletion_requests")
    op.drop_index(op.f("ix_deletion_requests_subject_ref_created_at_id"), table_name="deletion_requests")
    op.drop_index(
        "ix_deletion_requests_held",
        table_name="deletion_requests",
        sqlite_where=sa.text("held_until IS NOT NULL"),
        postgresql_where=sa.text("held_until IS NOT NULL"),
    )
    op.drop_index(
        "ix_deletion_requests_open",
        table_name="deletion_requests",
        sqlite_where=sa.text("status IN ('accepted', 'in_review', 'received', 'running')"),
        postgresql_where=sa.text("status IN ('accepted', 'in_review', 'received', 'running')"),
    )
    op.drop_table("deletion_requests")
    op.drop_index(op.f("ix_datasets_tenant_id_created_at_id"), table_name="datasets")
    op.drop_table("datasets")
    op.drop_index(op.f("ix_audit_entries_tenant_id_object_id_sequence"), table_name="audit_entries")
    op.drop_table("audit_entries")
    op.drop_table("audit_checkpoints")
    op.drop_index(op.f("ix_api_keys_tenant_id_created_at_id"), table_name="api_keys")
    op.drop_table("api_keys")
    op.drop_index(op.f("ix_tenants_created_at_id"), table_name="tenants")
    op.drop_table("tenants")


def _triggers(dialect: str, table: str, what: str) -> list[str]:
    """Nobody changes or removes a line of `table`: the database itself refuses."""
    if dialect == "sqlite":
        return [
            f"""CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table}
                BEGIN SELECT RAISE(ABORT, '{what} is append-only'); END"""
            for change in ("UPDATE", "DELETE")
        ]
    return [
        f"""CREATE FUNCTION {table}_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION '{what} is append-only'; END $$""",
        f"""CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION {table}_is_append_only()""",
    ]


def _queue(dialect: str) -> list[str]:
    """The erasures of a request know its deadline, and from when, as it stands, they may be claimed."""

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
