"""The database: its tables, and the only two ways to talk to it."""

from app.db.session import Actor, Database, actor, is_full, now, rows

__all__ = ["Actor", "Database", "actor", "is_full", "now", "rows"]
