"""Hooks of the `systems` feature."""

from app.deletion.history import OnChange
from app.deletion.repository import Awaited
from app.deletion.search_repository import Attached
from app.features.systems import service

ON_CHANGE: tuple[OnChange, ...] = (service.follow,)
AWAITS: tuple[Awaited, ...] = (Awaited(opening=service.opening, is_open=service.is_open),)
ATTACHED: tuple[Attached, ...] = (Attached(keys=service.note_keys, drop=service.drop_notes),)
