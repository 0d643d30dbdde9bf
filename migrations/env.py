"""Alembic's entry: run on the connection that `app.db.migrate` hands over."""

from alembic import context

from app.db.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
