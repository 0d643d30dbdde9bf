"""Hooks of the `desk` feature."""

from app.access.service import NamesOf
from app.deletion.search_repository import Attached
from app.features.desk import repository, tables
from app.features.people.users import EndSessions
from app.journal.repository import OnRestored

NAMES: tuple[NamesOf, ...] = (repository.names,)
RESTORED: tuple[OnRestored, ...] = (repository.end_sessions,)
LOGINS_ENDED: tuple[EndSessions, ...] = (repository.end_sessions_of,)
ATTACHED: tuple[Attached, ...] = (
    Attached(
        keys=repository.keys_of(tables.RequestNote, tables.RequestNote.text),
        drop=repository.drop_of(tables.RequestNote),
    ),
    Attached(
        keys=repository.keys_of(tables.RequestAttachment, tables.RequestAttachment.name),
        drop=repository.drop_of(tables.RequestAttachment),
    ),
)
