"""Hooks of the `rehearsals` feature."""

from app.features.rehearsals.service import RehearsalKind
from app.unlearning.kinds import AskedKind

ASKED_KINDS: tuple[AskedKind, ...] = (RehearsalKind(),)
