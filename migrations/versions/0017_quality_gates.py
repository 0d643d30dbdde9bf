"""Models may have a quality gate, and versions say whether they missed it, and are held back for that.

Revision ID: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("quality", sa.JSON(), nullable=True))
    for name in ("degraded", "held"):
        op.add_column("versions", sa.Column(name, sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    for name in ("held", "degraded"):
        op.drop_column("versions", name)
    op.drop_column("models", "quality")
