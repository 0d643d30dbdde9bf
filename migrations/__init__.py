"""Alembic migrations: `lethe migrate` runs them."""
