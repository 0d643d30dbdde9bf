"""Hooks of the `ledgers` feature."""

from app.deletion import history, repository
from app.features.ledgers import service

ON_CHANGE: tuple[history.OnChange, ...] = (service.follow,)
AWAITS: tuple[repository.Awaited, ...] = (repository.Awaited(opening=service.opening, is_open=service.is_open),)
