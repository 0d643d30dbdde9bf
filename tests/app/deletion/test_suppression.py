import datetime

import pytest

from app.db import now
from app.db.tables import AuditEntry
from app.deletion import search_repository, service as deletion, suppression
from app.installations import Installation
from lethe.contract.sets import RejectionGround
from lethe.contract.tenants import Policy
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER


def test_a_request_suppresses_its_person_in_its_datasets(installation: Installation) -> None:
    """A request for certain datasets suppresses the person in these datasets, and a request for all datasets suppresses
    the person everywhere, whether or not any rows were held."""
    with installation.database.writing() as session:
        people.hold(session, ["sub_a"])
        people.ask(session, "sub_a", Policy())
        people.ask(session, "sub_b", Policy())
        people.ask(session, "sub_c", Policy(), dataset_ids=["ds_1"])
    everybody = {"sub_a", "sub_b", "sub_c", "sub_d"}
    with installation.database.reading() as session:
        assert search_repository.suppressed_people(session, "ds_1", everybody) == {"sub_a", "sub_b", "sub_c"}
        assert search_repository.suppressed_people(session, "ds_2", everybody) == {"sub_a", "sub_b"}
        assert search_repository.suppressed_people(session, "ds_2", []) == set()


@pytest.mark.parametrize("few", [1, 1000])
def test_many_people_are_looked_up(installation: Installation, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup of 2000 people finds the suppressed ones, whether few or many are suppressed."""
    monkeypatch.setattr(search_repository, "_FEW_SUPPRESSIONS", few)
    with installation.database.writing() as session:
        people.hold(session, ["sub_a"])
        people.ask(session, "sub_7", Policy())
        people.ask(session, "sub_8", Policy(), dataset_ids=["ds_1"])
        people.ask(session, "stranger", Policy())
    everybody = {f"sub_{number}" for number in range(2000)}
    with installation.database.reading() as session:
        assert search_repository.suppressed_people(session, "ds_1", everybody) == {"sub_7", "sub_8"}
        assert search_repository.suppressed_people(session, "ds_2", everybody) == {"sub_7"}


def test_a_request_in_review_does_not_suppress_its_person(installation: Installation) -> None:
    """A request in review does not suppress its person until the request is approved. A rejected request never does."""
    policy = Policy(auto_accept=False)
    with installation.database.writing() as session:
        waiting = [people.ask(session, person, policy).request.id for person in ("sub_a", "sub_b")]
        assert search_repository.suppressed_people(session, "*", {"sub_a", "sub_b"}) == set()
        deletion.approve(session, deletion.get(session, waiting[0]), policy=policy)
        ground = RejectionGround.LEGAL_CLAIMS
        deletion.reject(session, deletion.get(session, waiting[1]), ground=ground, explanation="a lawsuit")
    with installation.database.reading() as session:
        assert search_repository.suppressed_people(session, "*", {"sub_a", "sub_b"}) == {"sub_a"}


def test_a_suppression_lasts_until_its_last_request_is_withdrawn(installation: Installation) -> None:
    """A person who has made two requests stays suppressed until both requests are withdrawn."""
    with installation.database.writing() as session:
        people.hold(session, ["sub_a"])
        first, second = (people.ask(session, "sub_a", Policy()).request.id for _ in range(2))
        deletion.cancel(session, deletion.get(session, first), discreet=False)
        assert search_repository.suppressed_people(session, "*", {"sub_a"}) == {"sub_a"}
        deletion.cancel(session, deletion.get(session, second), discreet=False)
        assert search_repository.suppressed_people(session, "*", {"sub_a"}) == set()


def test_consent_ends_a_suppression(installation: Installation) -> None:
    """A person who gives consent again can be added, and the audit log does not name them. Their earlier request does
    not suppress them again."""
    with installation.database.writing(by=OFFICER) as session:
        people.ask(session, "sub_a", Policy())
        assert suppression.lift(session, "sub_a", reason="consent_given") == 1
        assert suppression.lift(session, "sub_a", reason="consent_given") == 0
        people.hold(session, ["sub_a"])
        again = people.ask(session, "sub_a", Policy()).request
        assert search_repository.suppressed_people(session, "*", {"sub_a"}) == {"sub_a"}
        deletion.cancel(session, deletion.get(session, again.id), discreet=False)
        assert search_repository.suppressed_people(session, "*", {"sub_a"}) == set()
    with installation.database.reading(by=OFFICER) as session:
        [lifted] = session.query(AuditEntry).filter_by(action="suppression.lifted").all()
    assert (lifted.actor, lifted.detail["reason"]) == ("officer", "consent_given")
    assert "sub_a" not in str((lifted.object_id, lifted.detail))


@pytest.mark.parametrize(("hours", "expected"), [(0, {"sub_a"}), (2, set[str]())])
def test_recent_suppressions_include_those_an_upload_may_miss(
    installation: Installation, hours: int, expected: set[str]
) -> None:
    """The suppressions since a given time include one recorded shortly before it, which an upload that starts at that
    time can miss. They do not include one recorded two hours earlier."""
    with installation.database.writing() as session:
        people.ask(session, "sub_a", Policy())
        people.later(session, datetime.timedelta(hours=hours))
        assert search_repository.suppressed_since(session, now(session)) == expected
