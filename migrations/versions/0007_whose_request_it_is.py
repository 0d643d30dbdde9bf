"""Whose request it is.

Keys that are there see all requests of their tenant, as before, and nobody knows which of them made which.

What was an interval, after which callers who may not know are shown the end of a request, is now the age at which they
are, whatever has been done: less than a day, such as the five seconds it was by default, becomes a day.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_A_DAY = 86400
_TENANTS = sa.table("tenants", sa.column("id", sa.String()), sa.column("policy", sa.JSON()))
_IS_MADE = sa.text("maker IS NOT NULL")


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("line_id", sa.String(), nullable=True))
    op.add_column("api_keys", sa.Column("own_requests_only", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("deletion_requests", sa.Column("maker", sa.String(), nullable=True))
    op.create_index(
        op.f("ix_deletion_requests_tenant_id_maker_created_at_id"),
        "deletion_requests",
        ["tenant_id", "maker", "created_at", "id"],
        sqlite_where=_IS_MADE,
        postgresql_where=_IS_MADE,
    )

    connection = op.get_bind()
    for tenant_id, policy in connection.execute(sa.select(_TENANTS.c.id, _TENANTS.c.policy)).all():
        if 0 < policy.get("report_seconds", _A_DAY) < _A_DAY:
            changed = _TENANTS.update().where(_TENANTS.c.id == tenant_id)
            connection.execute(changed.values(policy=policy | {"report_seconds": _A_DAY}))


def downgrade() -> None:
    op.drop_index(op.f("ix_deletion_requests_tenant_id_maker_created_at_id"), table_name="deletion_requests")
    op.drop_column("deletion_requests", "maker")
    op.drop_column("api_keys", "own_requests_only")
    op.drop_column("api_keys", "line_id")
