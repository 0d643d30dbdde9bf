"""How many rows of each dataset are not null is kept with it, and runs that were cut off are found by their dataset.

Revision ID: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_CUT_OFF = sa.text("status IN ('abandoned', 'cancelled', 'failed')")


def upgrade() -> None:
    op.add_column("datasets", sa.Column("num_rows", sa.Integer(), server_default="0", nullable=False))
    op.execute(
        "UPDATE datasets SET num_rows = (SELECT count(*) FROM records LEFT JOIN additions"
        " ON additions.id = records.addition_id WHERE records.dataset_id = datasets.id"
        " AND (records.addition_id IS NULL OR additions.status = 'applied'))"
    )
    op.create_index(
        "ix_runs_cut_off",
        "runs",
        ["dataset_id", "finished_at"],
        unique=False,
        sqlite_where=_CUT_OFF,
        postgresql_where=_CUT_OFF,
    )


def downgrade() -> None:
    op.drop_index("ix_runs_cut_off", table_name="runs")
    op.drop_column("datasets", "num_rows")
