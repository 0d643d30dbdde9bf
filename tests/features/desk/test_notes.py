"""Notes about requests: sealed, and purged with the details of the request, whenever they were written."""

import datetime

import pytest
import sqlalchemy as sa

from app.db.tables import DeletionRequest
from app.deletion import retention, service as deletion
from app.features.desk import service
from app.features.desk.tables import Note, RequestNote
from app.installations import Installation
from app.operations import periodic_jobs
from lethe.contract.tenants import Policy
from lethe.features.desk.contract import DetailsErased
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER, kept, pass_by

DAY = datetime.timedelta(days=1)
POLICY = Policy(retain_details_days=30, report_seconds=0)
TEXT = "Called back: Jane Roe, +44 20 7946 0958"


def ask(installation: Installation, policy: Policy = POLICY) -> str:
    """Submit a request without any text, and let it end."""
    with installation.database.writing() as session:
        people.obey(session, policy)
        return people.ask(session, "sub_a", policy).request.id


def write(installation: Installation, request_id: str, *, policy: Policy = POLICY) -> str:
    """Add a note and return the name of its key."""
    with installation.database.writing(by=OFFICER) as session:
        note_id = service.add_note(session, deletion.get(session, request_id), text=TEXT, policy=policy).id
    with installation.database.reading() as session:
        key = session.get_one(RequestNote, note_id).text.key
    assert key is not None
    return key


def left(installation: Installation) -> list[Note]:
    with installation.database.reading() as session:
        return [note.text for note in session.scalars(sa.select(RequestNote))]


def sealed(installation: Installation) -> list[bytes]:
    """Return the stored texts of notes, which are sealed."""
    with installation.database.reading() as session:
        return list(session.scalars(sa.text("SELECT text FROM request_notes")))


def test_notes_are_purged_with_the_details(installation: Installation) -> None:
    """Notes count as details of their request, even if the request has no other details. After the retention period the
    note's row and key are deleted, and its text in a backup of the database cannot be decrypted."""
    request_id = ask(installation)
    assert kept(installation, request_id) == "request"
    write(installation, request_id)
    [stored] = sealed(installation)
    assert (kept(installation, request_id), TEXT.encode() in stored) == ("details", False)
    pass_by(installation, 29 * DAY)
    periodic_jobs.purge_requests(installation)
    assert [note.text for note in left(installation)] == [TEXT]
    assert installation.vault.open(stored) is not None
    pass_by(installation, 2 * DAY)
    periodic_jobs.purge_requests(installation)
    assert (kept(installation, request_id), left(installation)) == ("request", [])
    assert installation.vault.open(stored) is None


def test_each_note_has_its_own_key(installation: Installation) -> None:
    """Each note is sealed under its own key."""
    request_id = ask(installation)
    assert len({write(installation, request_id) for _ in range(3)}) == 3


def test_a_note_after_the_purge_is_refused(installation: Installation) -> None:
    """A note is refused once the request's details have been purged, even if the whole request was purged earlier."""
    for policy in (POLICY, Policy(retain_details_days=90, retain_requests_days=30, report_seconds=0)):
        request_id = ask(installation, policy)
        pass_by(installation, 29 * DAY)
        write(installation, request_id, policy=policy)
        pass_by(installation, 2 * DAY)
        with pytest.raises(DetailsErased):
            write(installation, request_id, policy=policy)
        periodic_jobs.purge_requests(installation)
        with pytest.raises(DetailsErased):
            write(installation, request_id, policy=policy)
        assert left(installation) == []


def test_a_trace_accepts_no_notes(installation: Installation) -> None:
    """A request that has been reduced to a trace accepts no notes, even if the policy has since been changed to keep
    details longer."""
    request_id = ask(installation, Policy(retain_details_days=1, retain_requests_days=1, report_seconds=0))
    pass_by(installation, 2 * DAY)
    periodic_jobs.purge_requests(installation)
    assert kept(installation, request_id) == "trace"
    with pytest.raises(DetailsErased):
        write(installation, request_id, policy=Policy(retain_details_days=3650))


def test_an_open_request_takes_notes(installation: Installation) -> None:
    """An open request accepts notes, however old it is and however short the retention of details."""
    policy = Policy(auto_accept=False, retain_details_days=0)
    request_id = ask(installation, policy)
    pass_by(installation, 400 * DAY)
    write(installation, request_id, policy=policy)
    periodic_jobs.purge_requests(installation)
    assert len(left(installation)) == 1


@pytest.mark.parametrize("had_note", [True, False])
def test_a_note_added_while_details_are_purged_is_purged(installation: Installation, had_note: bool) -> None:
    """If a note is added under an outdated policy after the purge has read the due requests, neither it nor its key is
    left behind. The request becomes due again, and the next purge removes the note."""
    request_id = ask(installation)
    if had_note:
        write(installation, request_id)
    with installation.database.writing() as session:
        session.get_one(DeletionRequest, request_id).kept = "details"
    pass_by(installation, 31 * DAY)
    with installation.database.reading() as session:
        due = retention.due(session, limit=9)
    installation.vault.destroy(key for one in due for key in one.keys)
    write(installation, request_id, policy=Policy(retain_details_days=3650))
    stored = sealed(installation)
    with installation.database.writing() as session:
        retention.forget(session, due)
    assert (kept(installation, request_id), len(left(installation))) == ("details", 1 + had_note)
    periodic_jobs.purge_requests(installation)
    assert (kept(installation, request_id), left(installation)) == ("request", [])
    assert [installation.vault.open(one) for one in stored] == [None] * len(stored)


def test_a_note_added_while_a_request_is_purged_is_purged(installation: Installation) -> None:
    """A note that is added while a request is being purged is purged with it, because details are purged first."""
    policy = Policy(retain_details_days=30, retain_requests_days=60, report_seconds=0)
    request_id = ask(installation, policy)
    pass_by(installation, 61 * DAY)
    with installation.database.reading() as session:
        due = retention.due(session, limit=9)
    write(installation, request_id, policy=Policy(retain_details_days=3650))
    with installation.database.writing() as session:
        retention.forget(session, due)
    assert (kept(installation, request_id), len(left(installation))) == ("details", 1)
    periodic_jobs.purge_requests(installation)
    assert (kept(installation, request_id), left(installation)) == ("trace", [])
