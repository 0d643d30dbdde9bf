"""Hooks of the `trainers` feature: requests wait for retrainings, and restored databases contain no artefacts."""

from app.deletion.repository import Awaited
from app.features.trainers import service
from app.journal.repository import OnRestored

AWAITS: tuple[Awaited, ...] = (Awaited(opening=service.opening, is_open=service.is_open),)
RESTORED: tuple[OnRestored, ...] = (service.lose_artefacts,)
