"""Attachments of requests: sealed, purged with the details of the request, and deleted."""

import datetime

import pytest
import sqlalchemy as sa

from app.deletion import retention, service as deletion
from app.features.desk import file_kinds, repository, service
from app.features.desk.tables import RequestAttachment
from app.installations import Installation
from app.operations import periodic_jobs
from lethe.contract.tenants import Policy
from lethe.features.desk.contract import AttachmentUnknown, DetailsErased
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER, kept, pass_by
from tests.features.desk.attached import NAME, PDF

DAY = datetime.timedelta(days=1)
POLICY = Policy(retain_details_days=30, report_seconds=0)


def ask(installation: Installation) -> str:
    """Submit a request without any text, and let it end."""
    with installation.database.writing() as session:
        people.obey(session, POLICY)
        return people.ask(session, "sub_a", POLICY).request.id


def attach(installation: Installation, request_id: str, *, policy: Policy = POLICY) -> str:
    file = file_kinds.examine(NAME, PDF, max_bytes=1000)
    with installation.database.writing(by=OFFICER) as session:
        request = deletion.get(session, request_id)
        return service.attach(session, request, file=file, max_attachments=9, policy=policy).id


def stored(installation: Installation) -> list[bytes]:
    """Return the stored names and contents of attachments."""
    with installation.database.reading() as session:
        found = session.execute(sa.text("SELECT name, content FROM request_attachments")).all()
    return [bytes(one) for row in found for one in row]


def test_attachments_are_purged_with_the_details(installation: Installation) -> None:
    """Attachments count as details of their request, even if the request has no other details. After the retention
    period the attachment's row and key are deleted, and its name and bytes in a backup of the database cannot be
    decrypted."""
    request_id = ask(installation)
    attach(installation, request_id)
    before = stored(installation)
    assert kept(installation, request_id) == "details"
    assert not any(secret in one for one in before for secret in (b"Jane", b"PDF"))
    pass_by(installation, 29 * DAY)
    periodic_jobs.purge_requests(installation)
    assert all(installation.vault.open(one) for one in before)
    pass_by(installation, 2 * DAY)
    periodic_jobs.purge_requests(installation)
    assert (kept(installation, request_id), stored(installation)) == ("request", [])
    assert [installation.vault.open(one) for one in before] == [None, None]


def test_name_and_bytes_have_one_key(installation: Installation) -> None:
    """An attachment's name and bytes can be read until the key that they share is destroyed. Destroying the key affects
    no other attachment."""
    request_id = ask(installation)
    first, second = attach(installation, request_id), attach(installation, request_id)
    keys = [installation.vault.key_of(one) for one in stored(installation)]
    assert (keys[0] == keys[1], keys[2] == keys[3], len(set(keys))) == (True, True, 2)
    with installation.database.reading() as session:
        key = service.attachment_key(session, request_id=request_id, attachment_id=first)
    installation.vault.destroy([key])
    with installation.database.reading() as session:
        found, content = service.read_attachment(session, request_id=request_id, attachment_id=second)
        assert (found.name.text, content) == (NAME, PDF)
        with pytest.raises(AttachmentUnknown):
            service.read_attachment(session, request_id=request_id, attachment_id=first)


def test_an_interrupted_deletion_can_be_repeated(installation: Installation) -> None:
    """If an attachment's key has been destroyed but its row remains, the file cannot be read. Deleting the attachment
    again removes the row."""
    request_id = ask(installation)
    attachment_id = attach(installation, request_id)
    named = {"request_id": request_id, "attachment_id": attachment_id}
    with installation.database.reading() as session:
        key = service.attachment_key(session, **named)
    installation.vault.destroy([key])
    with installation.database.writing(by=OFFICER) as session:
        with pytest.raises(AttachmentUnknown):
            service.get_attachment(session, **named)
        assert service.attachment_key(session, **named) == key
        service.delete_attachment(session, **named)
    assert stored(installation) == []
    with installation.database.writing(by=OFFICER) as session:
        for asked in (service.attachment_key, service.delete_attachment, service.record_download):
            with pytest.raises(AttachmentUnknown):
                asked(session, **named)


def test_lists_read_no_bytes(installation: Installation) -> None:
    """Listing attachments does not load their bytes. They are loaded only when a file is read."""
    request_id = ask(installation)
    attach(installation, request_id)
    with installation.database.reading() as session:
        [found] = repository.page_of(session, RequestAttachment, request_id=request_id, limit=9, cursor=None).items
        assert "content" in sa.inspect(found).unloaded


def test_an_attachment_after_the_purge_is_refused(installation: Installation) -> None:
    """An attachment is refused once the request's details have been purged."""
    request_id = ask(installation)
    pass_by(installation, 31 * DAY)
    with pytest.raises(DetailsErased):
        attach(installation, request_id)


def test_an_attachment_added_during_a_purge_is_purged(installation: Installation) -> None:
    """If an attachment is added after the purge has read the due requests, neither it nor its key is left behind. The
    request becomes due again, and the next purge removes the attachment."""
    request_id = ask(installation)
    attach(installation, request_id)
    pass_by(installation, 31 * DAY)
    with installation.database.reading() as session:
        due = retention.due(session, limit=9)
    installation.vault.destroy(key for one in due for key in one.keys)
    attach(installation, request_id, policy=Policy(retain_details_days=3650))
    before = stored(installation)
    with installation.database.writing() as session:
        retention.forget(session, due)
        assert session.scalar(sa.select(sa.func.count()).select_from(RequestAttachment)) == 2
    periodic_jobs.purge_requests(installation)
    assert (kept(installation, request_id), stored(installation)) == ("request", [])
    assert [installation.vault.open(one) for one in before] == [None] * 4
