"""Hooks of the feature trainers: requests wait for retrainings."""

from app.deletion.repository import Awaited
from app.features.trainers import service

AWAITS: tuple[Awaited, ...] = (Awaited(opening=service.opening, is_open=service.is_open),)
