"""The database: its tables, and the only two ways to talk to it."""

from app.db.session import Database, now

__all__ = ["Database", "now"]
