"""Hooks of the `people` feature."""

from app.access.service import HoldsScope, NamesOf
from app.features.people import repository, users
from app.journal.repository import CountPeople, OnRestored

HOLDS_SCOPE: tuple[HoldsScope, ...] = (users.holds_scope,)
NAMES: tuple[NamesOf, ...] = (repository.names,)
RESTORED: tuple[OnRestored, ...] = (repository.void_invitations,)
PEOPLE_BY_ROLE: tuple[CountPeople, ...] = (repository.people_by_role,)
