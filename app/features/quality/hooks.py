"""Hooks of the `quality` feature."""

from app.catalogue.service import Judge
from app.features.quality import gates

JUDGES = (Judge(to_stored=gates.to_stored, judge=gates.judge, describe=gates.describe),)
