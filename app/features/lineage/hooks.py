"""Hooks of the `lineage` feature."""

from app.catalogue.service import HandedOut
from app.features.lineage import service

HANDED_OUT: tuple[HandedOut, ...] = (service.record_export,)
