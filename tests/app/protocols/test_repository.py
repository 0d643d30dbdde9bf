"""What came by a protocol is found again by the id that its caller gave it."""

import pytest

from app.db import Actor
from app.installations import Installation
from app.protocols import drp, opendsr, repository
from lethe.contract.policy import Policy
from tests.app.deletion import people

NAMED = "theirs"


@pytest.mark.parametrize("source", [opendsr.SOURCE, drp.SOURCE])
def test_what_is_being_purged_is_not_found(installation: Installation, by: Actor, source: str) -> None:
    """A request whose words can be read no more is nobody's, also while the reference to it is still there."""
    with installation.database.writing(by=by) as session:
        people.ask(session, "sub_1", Policy(), source=source, external_id=NAMED)
        people.ask(session, "sub_1", Policy(), source="file", external_id=NAMED)
    with installation.database.reading() as session:
        [found] = repository.requests(session, source=source, external_id=NAMED)
        assert found.particulars.key is not None
        installation.vault.destroy([found.particulars.key])
    with installation.database.reading() as session:
        assert repository.requests(session, source=source, external_id=NAMED) == []
