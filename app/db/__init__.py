"""Database: its tables, and sessions, which are the only way to read and write them."""

from app.db.driver import rows
from app.db.session import Actor, Database, actor, is_full, now

__all__ = ["Actor", "Database", "actor", "is_full", "now", "rows"]
