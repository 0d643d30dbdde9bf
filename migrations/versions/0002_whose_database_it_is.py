"""Whose database it is: an installation's id, and a check value of each of its keys.

The line itself is written when the installation is set up, once its keys are known to be those of what is stored.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "installation_identity",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("check_values", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation_identity")),
    )


def downgrade() -> None:
    op.drop_table("installation_identity")
