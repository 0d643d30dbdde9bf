"""Table of the `canary_people` feature in release 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "canary_people_0001"
down_revision = None
branch_labels = ("canary_people",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "canary_rounds",
        sa.Column("training_id", sa.String(), nullable=False),
        sa.Column("trainer_id", sa.String(), nullable=False),
        sa.Column("drawn_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["training_id"], ["trainings.id"], name="fk_canary_rounds_training_id"),
        sa.ForeignKeyConstraint(["trainer_id"], ["trainers.id"], name="fk_canary_rounds_trainer_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_canary_rounds_tenant_id"),
        sa.PrimaryKeyConstraint("training_id", name="pk_canary_rounds"),
    )
    op.create_index("ix_canary_rounds_trainer_id", "canary_rounds", ["trainer_id"])
    op.create_index("ix_canary_rounds_key", "canary_rounds", ["key"])


def downgrade() -> None:
    op.drop_table("canary_rounds")
