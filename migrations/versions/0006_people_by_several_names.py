"""People by several names: the rule by which subject ids are compared, and aliases of requests.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TENANTS = sa.table("tenants", sa.column("id", sa.String()), sa.column("policy", sa.JSON()))


def upgrade() -> None:
    op.add_column("deletion_requests", sa.Column("alias_refs", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "request_aliases",
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("subject_ref", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["deletion_requests.id"], name=op.f("fk_request_aliases_request_id_deletion_requests")
        ),
        sa.PrimaryKeyConstraint("request_id", "subject_ref", name=op.f("pk_request_aliases")),
    )
    op.create_index(op.f("ix_request_aliases_subject_ref"), "request_aliases", ["subject_ref"], unique=False)
    _set_policies({"subject_rule": "exact"})  # what is there was made from ids as they came


def downgrade() -> None:
    op.drop_index(op.f("ix_request_aliases_subject_ref"), table_name="request_aliases")
    op.drop_table("request_aliases")
    op.drop_column("deletion_requests", "alias_refs")
    _set_policies({}, without="subject_rule")


def _set_policies(changed: dict[str, str], *, without: str | None = None) -> None:
    connection = op.get_bind()
    for tenant_id, policy in connection.execute(sa.select(_TENANTS.c.id, _TENANTS.c.policy)).all():
        kept = {name: value for name, value in policy.items() if name != without}
        connection.execute(sa.update(_TENANTS).where(_TENANTS.c.id == tenant_id).values(policy=kept | changed))
