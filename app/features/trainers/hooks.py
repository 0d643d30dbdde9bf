"""Hooks of the feature trainers: requests wait for retrainings, and a restored database has no artefacts."""

from app.deletion.repository import Awaited
from app.features.trainers import service
from app.journal.repository import OnRestored

AWAITS: tuple[Awaited, ...] = (Awaited(opening=service.opening, is_open=service.is_open),)
RESTORED: tuple[OnRestored, ...] = (service.lose_artefacts,)
