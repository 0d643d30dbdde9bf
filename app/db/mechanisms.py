"""Mechanisms as they are stored."""

from typing import Any

from app.errors import MechanismUnreadable
from lethe.proof.errors import PrivacyError
from lethe.proof.mechanism import Mechanism


def stored_mechanism(document: dict[str, Any]) -> Mechanism:
    """The mechanism of a document of the database. Raises `MechanismUnreadable`."""
    try:
        return Mechanism.from_json(document)
    except (PrivacyError, TypeError, ValueError, AttributeError) as error:
        said = error if isinstance(error, PrivacyError) else type(error).__name__
        raise MechanismUnreadable(
            f"A mechanism in the database is not one of this release ({said}). Run `lethe migrate`; if that does not "
            "help, somebody changed it: restore a backup."
        ) from error
