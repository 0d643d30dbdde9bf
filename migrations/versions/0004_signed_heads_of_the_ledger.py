"""One chain over the ledger of a tenant, and one table of what was signed about chains.

Entries that are there are linked in the order in which their versions were published. Nothing of an entry changes.

Revision ID: 0004
"""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_APPEND_ONLY = {"checkpoints": "what was signed", "ledger_links": "the ledger"}
_GENESIS = "0" * 64


def upgrade() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("log", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("jws", sa.Text(), nullable=False),
        sa.Column("signed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_checkpoints_tenant_id")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint("tenant_id", "log", "sequence", name=op.f("uq_checkpoints_tenant_id_log_sequence")),
    )
    op.create_table(
        "ledger_links",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_ledger_links_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "sequence", name=op.f("pk_ledger_links")),
    )
    op.execute(
        "INSERT INTO checkpoints (tenant_id, log, sequence, hash, jws, signed_at) "
        "SELECT tenant_id, 'audit', sequence, hash, jws, signed_at FROM audit_checkpoints "
        "ORDER BY signed_at, tenant_id, sequence"
    )
    _link()
    _drop("audit_checkpoints")
    for table, what in _APPEND_ONLY.items():
        for statement in _triggers(op.get_bind().dialect.name, table, what):
            op.execute(statement)


def downgrade() -> None:
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
    op.execute(
        "INSERT INTO audit_checkpoints (tenant_id, sequence, hash, jws, signed_at) "
        "SELECT tenant_id, sequence, hash, jws, signed_at FROM checkpoints WHERE log = 'audit'"
    )
    for statement in _triggers(op.get_bind().dialect.name, "audit_checkpoints", "the audit log"):
        op.execute(statement)
    for table in _APPEND_ONLY:
        _drop(table)


def _link() -> None:
    """Chain the entries of each tenant, as `app.accounting.ledger` did when this was written."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text(
            "SELECT models.tenant_id, ledger_entries.model_id, ledger_entries.sequence, ledger_entries.hash "
            "FROM ledger_entries JOIN models ON models.id = ledger_entries.model_id "
            "LEFT JOIN versions ON versions.model_id = ledger_entries.model_id "
            "AND versions.number = ledger_entries.sequence "
            "ORDER BY models.tenant_id, versions.published_at, ledger_entries.model_id, ledger_entries.sequence"
        )
    ).all()
    links = sa.table("ledger_links", *map(sa.column, ("tenant_id", "sequence", "body", "previous_hash", "hash")))
    tenant, sequence, previous = None, 0, _GENESIS
    for tenant_id, model_id, entry, hash_ in found:
        if tenant_id != tenant:
            tenant, sequence, previous = tenant_id, 0, _GENESIS
        sequence += 1
        said = {"format": "lethe-ledger-link/1", "tenant_id": tenant_id, "sequence": sequence, "kind": "entry"}
        said |= {"model_id": model_id, "entry": entry, "hash": hash_}
        body = json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)
        linked = hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
        values = {"tenant_id": tenant_id, "sequence": sequence, "body": body}
        connection.execute(sa.insert(links).values(values | {"previous_hash": previous, "hash": linked}))
        previous = linked


def _drop(table: str) -> None:
    """A table to which could only be appended."""
    postgresql = op.get_bind().dialect.name == "postgresql"
    op.drop_table(table)
    if postgresql:
        op.execute(f"DROP FUNCTION {table}_is_append_only")


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
