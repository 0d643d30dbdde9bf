"""Whose database it is: an installation's id, and a check value of each of its keys.

Each dataset has a check value of the key that the references of its people were made with.

The line itself, and the values of datasets that are there, are written when the installation is set up, once its keys
are known to be those of what is stored.
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
    op.add_column("datasets", sa.Column("references_check", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("datasets", "references_check")
    op.drop_table("installation_identity")
