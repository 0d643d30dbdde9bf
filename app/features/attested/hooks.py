"""Hooks of the `attested` feature."""

from app.deletion import history, repository
from app.features.attested import service
from app.journal.repository import OnRestored

ON_CHANGE: tuple[history.OnChange, ...] = (service.follow,)
AWAITS: tuple[repository.Awaited, ...] = (repository.Awaited(opening=service.opening, is_open=service.is_open),)
RESTORED: tuple[OnRestored, ...] = (service.doubt_artefacts,)
