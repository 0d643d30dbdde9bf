"""Notes and files with a flipped bit are marked as damaged, and the rest of the case is shown."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.features.desk import repository
from app.features.desk.tables import RequestAttachment, RequestNote
from app.installations import Installation
from tests.app.api.test_damaged_certificates import damage
from tests.features.desk.attached import PDF
from tests.features.desk.browsing import Browser
from tests.stored import flipped, line_of

Make = Callable[..., dict[str, Any]]
Refused = Callable[..., dict[str, Any]]


class Case:
    """A request with details, two notes and two files, the first of each damaged."""

    def __init__(self, gateway: TestClient, installation: Installation, forget: Make) -> None:
        self.id = forget("p1", identity_verified=False, external_id="case-7")["id"]
        self.path = f"/v1/deletion-requests/{self.id}"
        for text in ("first", "second"):
            assert gateway.post(f"{self.path}/notes", json={"text": text}).status_code == 201
            file = {"file": (f"{text}.pdf", PDF)}
            assert gateway.post(f"{self.path}/attachments", files=file).status_code == 201
        with installation.database.reading() as session:
            for table in (RequestNote, RequestAttachment):
                row, _ = repository.page_of(session, table, request_id=self.id, limit=2, cursor=None).items
                key = row.text.key if isinstance(row, RequestNote) else row.name.key
                page, place = line_of(installation, key)
                page.write_bytes(flipped(page.read_bytes(), place + 40))


@pytest.fixture
def case(gateway: TestClient, installation: Installation, forget: Make) -> Case:
    return Case(gateway, installation, forget)


def test_lists_mark_damaged_notes_and_files(gateway: TestClient, case: Case, refused: Refused) -> None:
    """The lists of notes and files mark damaged entries and show the others unchanged. A damaged file cannot be
    downloaded, but can be erased."""
    notes = gateway.get(f"{case.path}/notes").json()["items"]
    assert [(note["damaged"], note["text"]) for note in notes] == [(True, ""), (False, "second")]
    files = gateway.get(f"{case.path}/attachments").json()["items"]
    assert [(file["damaged"], file["name"]) for file in files] == [(True, ""), (False, "second.pdf")]
    assert gateway.get(f"{case.path}/attachments/{files[1]['id']}").content == PDF
    damaged = f"{case.path}/attachments/{files[0]['id']}"
    assert "Put back the file" in refused(gateway.get(damaged), 409, "sealed_text_damaged")["detail"]
    assert gateway.delete(damaged).status_code == 204
    assert [file["id"] for file in gateway.get(f"{case.path}/attachments").json()["items"]] == [files[1]["id"]]


def test_pages_mark_damaged_details(
    officer: Browser, gateway: TestClient, installation: Installation, case: Case
) -> None:
    """A case's page marks damaged notes, files and details. The list of requests is still shown."""
    page = officer.get(f"/admin/requests/{case.id}")
    assert (page.status_code, page.text.count("Damaged: ")) == (200, 2)
    assert "second.pdf" in page.text
    for file in (installation.settings.data_dir / "vault").glob("*.page"):
        file.unlink()
    page = officer.get(f"/admin/requests/{case.id}")
    assert (page.status_code, page.text.count("Damaged: ")) == (200, 5)
    assert officer.get("/admin/requests").status_code == 200
    file = gateway.get(f"{case.path}/attachments").json()["items"][0]
    answer = officer.get(f"/admin/requests/{case.id}/attachments/{file['id']}")
    assert (answer.status_code, "is damaged" in answer.text) == (409, True)


def test_pages_name_a_damaged_certificate(
    officer: Browser,
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    refused: Refused,
) -> None:
    """A request's page states which certificate is damaged. No reply is drafted, because it would omit the
    certificate."""
    new_model(new_dataset(rows=60)["id"], noise_scale=0.02)
    work()
    request = forget("p3")["id"]
    work()
    path = f"/v1/deletion-requests/{request}"
    [certificate] = gateway.get(f"{path}/certificate").json()["certificates"]
    damage(installation, certificate["id"])
    page = officer.get(f"/admin/requests/{request}")
    assert (page.status_code, f"Damaged: {certificate['id']}" in page.text) == (200, True)
    assert officer.get(f"/admin/requests/{request}/reply").status_code == 409
    place = f"/admin/certificates/{certificate['id']}"
    assert officer.get(f"{place}.jws").status_code == 409
    assert "Not valid." in officer.post(f"{place}/verify").text
    refused(gateway.get(f"{path}/reply"), 409, "certificate_damaged")
