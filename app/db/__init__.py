"""Database: its tables, and the sessions through which all reads and writes go."""

from app.db.driver import rows
from app.db.session import EVER, Actor, Database, actor, is_full, now

__all__ = ["EVER", "Actor", "Database", "actor", "is_full", "now", "rows"]
