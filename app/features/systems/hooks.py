"""Hooks of the `systems` feature."""

from app.deletion import history, repository, search_repository
from app.features.systems import service

ON_CHANGE: tuple[history.OnChange, ...] = (service.follow,)
AWAITS: tuple[repository.Awaited, ...] = (repository.Awaited(opening=service.opening, is_open=service.is_open),)
ATTACHED: tuple[search_repository.Attached, ...] = (
    search_repository.Attached(keys=service.note_keys, drop=service.drop_notes),
)
