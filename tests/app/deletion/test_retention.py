"""Retention of the details of requests and of the requests themselves."""

import datetime
import hashlib

import sqlalchemy as sa

from app.audit import repository as audit_repository
from app.db.sealed import Particulars
from app.db.tables import DeletionRequest, Suppression
from app.deletion import service as deletion
from app.deletion.search_repository import UNKNOWN_SUBJECT
from app.installations import Installation
from app.operations import periodic_jobs
from lethe.contract.tenants import Policy
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER

WRITTEN = {"external_id": "Jane Roe", "metadata": {"note": "Jane Roe, ticket 7"}}
DAY = datetime.timedelta(days=1)


def ask(installation: Installation, policy: Policy, person: str = "sub_a") -> str:
    """Submit a request with details and return its id."""
    with installation.database.writing() as session:
        people.obey(session, policy)
        return people.ask(session, person, policy, **WRITTEN).request.id


def pass_by(installation: Installation, passed: datetime.timedelta) -> None:
    with installation.database.writing() as session:
        people.later(session, passed)
    periodic_jobs.purge_requests(installation)


def found(installation: Installation, request_id: str) -> DeletionRequest:
    with installation.database.reading() as session:
        return deletion.get(session, request_id)


def test_details_are_purged_when_their_retention_ends(installation: Installation) -> None:
    """Once `retain_details_days` have passed since a request ended, none of its details are left and its key is
    destroyed."""
    request_id = ask(installation, Policy(retain_details_days=30, report_seconds=0))
    pass_by(installation, 29 * DAY)
    before = found(installation, request_id)
    assert (before.kept, before.particulars.external_id) == ("details", "Jane Roe")
    with installation.database.reading() as session:
        sealed = session.execute(sa.text("SELECT particulars FROM deletion_requests")).scalar_one()
    assert installation.vault.open(bytes(sealed)) is not None
    pass_by(installation, 2 * DAY)
    after = found(installation, request_id)
    assert (after.kept, after.particulars, after.external_ref) == ("request", Particulars(), None)
    assert after.subject_ref == "sub_a"
    assert installation.vault.open(bytes(sealed)) is None


def test_only_a_trace_of_an_old_request_is_kept(installation: Installation) -> None:
    """Once `retain_requests_days` have passed, only a trace of the request without its subject is kept, and the person
    can be added again."""
    request_id = ask(installation, Policy(retain_details_days=0, retain_requests_days=90, report_seconds=0))
    pass_by(installation, 89 * DAY)
    assert found(installation, request_id).subject_ref == "sub_a"
    pass_by(installation, 2 * DAY)
    after = found(installation, request_id)
    assert (after.kept, after.subject_ref, after.status) == ("trace", UNKNOWN_SUBJECT, "completed")
    with installation.database.reading() as session:
        assert session.scalars(sa.select(Suppression)).all() == []


def test_a_later_request_still_suppresses_a_purged_subject(installation: Installation) -> None:
    """If retention removes the subject of one request, another request that is still kept continues to suppress the
    person."""
    policy = Policy(retain_details_days=0, retain_requests_days=90, report_seconds=0)
    first = ask(installation, policy)
    with installation.database.writing() as session:
        people.later(session, 60 * DAY)
    second = ask(installation, policy)
    pass_by(installation, 40 * DAY)
    assert (found(installation, first).kept, found(installation, second).kept) == ("trace", "request")
    with installation.database.reading() as session:
        [row] = session.scalars(sa.select(Suppression))
        assert (row.subject_ref, row.request_id) == ("sub_a", second)


def test_details_are_purged_with_their_request(installation: Installation) -> None:
    """If requests are retained for less time than their details, the details are purged together with the request."""
    request_id = ask(installation, Policy(retain_details_days=30, retain_requests_days=7, report_seconds=0))
    pass_by(installation, 8 * DAY)
    periodic_jobs.purge_requests(installation)
    assert found(installation, request_id).kept == "trace"


def test_an_open_request_is_not_purged(installation: Installation) -> None:
    """An open request keeps its details, however old it is."""
    request_id = ask(installation, Policy(auto_accept=False, retain_details_days=0, retain_requests_days=0))
    pass_by(installation, 400 * DAY)
    assert found(installation, request_id).kept == "details"


def test_a_purge_is_recorded(installation: Installation) -> None:
    """The audit log states how many requests a purge affected and what is still kept of them. It identifies the
    requests only by a digest."""
    policy = Policy(retain_details_days=0, report_seconds=0)
    ids = [ask(installation, policy), ask(installation, policy, "sub_b")]
    pass_by(installation, DAY)
    with installation.database.reading() as session:
        entries = audit_repository.all_entries(session, tenant_id=OFFICER.tenant_id)
        [entry] = [entry for entry in entries if entry.action == "deletion_requests.purged"]
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
    assert entry.actor == "lethe"
    assert entry.detail == {"kept": "request", "requests": 2, "request_ids_sha256": digest}


def test_retention_is_per_tenant(installation: Installation) -> None:
    """One tenant's retention policy never purges the details of another tenant's requests."""
    request_id = ask(installation, Policy(retain_details_days=0, report_seconds=0))
    with installation.database.writing() as session:
        people.obey(session, Policy(retain_details_days=3650))
    pass_by(installation, 400 * DAY)
    assert found(installation, request_id).kept == "details"


def test_an_interrupted_purge_is_repeated(installation: Installation) -> None:
    """If the service dies after destroying keys but before recording the purge, the details can no longer be read, and
    the next purge records that they were purged."""
    request_id = ask(installation, Policy(retain_details_days=1, report_seconds=0))
    key = found(installation, request_id).particulars.key
    assert key is not None
    installation.vault.destroy([key])
    assert found(installation, request_id).particulars == Particulars()
    pass_by(installation, 2 * DAY)
    assert found(installation, request_id).kept == "request"


def test_details_are_never_stored_unencrypted(installation: Installation) -> None:
    """Even while details are retained, their texts never appear unencrypted in database rows or in files in the data
    folder."""
    ask(installation, Policy())
    with installation.database.reading() as session:
        names = sa.inspect(session.get_bind()).get_table_names()
        rows = "".join(str(session.execute(sa.text(f"SELECT * FROM {name}")).all()) for name in names)
    files = b"".join(path.read_bytes() for path in installation.settings.data_dir.rglob("*") if path.is_file())
    for word in ("Jane Roe", "ticket 7"):
        assert word not in rows
        assert word.encode() not in files
