"""Hooks of the `attested` feature."""

from app.deletion.history import OnChange
from app.deletion.repository import Awaited
from app.features.attested import service
from app.journal.repository import OnRestored

ON_CHANGE: tuple[OnChange, ...] = (service.follow,)
AWAITS: tuple[Awaited, ...] = (Awaited(opening=service.opening, is_open=service.is_open),)
RESTORED: tuple[OnRestored, ...] = (service.doubt_artefacts,)
