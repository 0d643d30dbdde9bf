"""Hooks of the `ledgers` feature."""

from app.deletion.history import OnChange
from app.deletion.repository import Awaited
from app.features.ledgers import service

ON_CHANGE: tuple[OnChange, ...] = (service.follow,)
AWAITS: tuple[Awaited, ...] = (Awaited(opening=service.opening, is_open=service.is_open),)
