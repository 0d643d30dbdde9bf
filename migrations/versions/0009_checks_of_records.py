"""Each record carries a check value of its own; requests wait while somebody may be held who is not found.

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_IS_DAMAGED, _IS_DOUBTED = sa.text("damaged_at IS NOT NULL"), sa.text("doubted_at IS NOT NULL")


def upgrade() -> None:
    """Records get their check values where the keys are at hand: `app.rows.records.give_checks`."""
    op.add_column("records", sa.Column("check_value", sa.LargeBinary(), nullable=True))
    have_checks = sa.Column("records_have_checks", sa.Boolean(), server_default=sa.false(), nullable=False)
    op.add_column("datasets", have_checks)
    op.add_column("datasets", sa.Column("records_verified_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("datasets", sa.Column("records_verified_to", sa.Integer(), nullable=True))
    op.add_column("deletion_requests", sa.Column("doubted_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_datasets_damaged", "datasets", ["damaged_at"], sqlite_where=_IS_DAMAGED, postgresql_where=_IS_DAMAGED
    )
    op.create_index(
        "ix_deletion_requests_doubted",
        "deletion_requests",
        ["status", "created_at"],
        sqlite_where=_IS_DOUBTED,
        postgresql_where=_IS_DOUBTED,
    )


def downgrade() -> None:
    op.drop_index("ix_deletion_requests_doubted", table_name="deletion_requests")
    op.drop_index("ix_datasets_damaged", table_name="datasets")
    op.drop_column("deletion_requests", "doubted_at")
    for name in ("records_verified_to", "records_verified_at", "records_have_checks"):
        op.drop_column("datasets", name)
    op.drop_column("records", "check_value")
