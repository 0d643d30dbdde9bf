"""Pages: attachments of a request, by plain forms."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from lethe.contract.sets import Scope
from tests.features.desk.attached import PDF
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
NAME = "Letter <b>of Jane.pdf"


@pytest.fixture
def place(forget: Make) -> str:
    return f"/admin/requests/{forget('p1', identity_verified=False)['id']}"


def test_a_file_is_added_saved_and_deleted(officer: Browser, place: str, get: Get) -> None:
    """A file is added through a form, listed with its name as plain text, downloaded, and deleted after a
    confirmation."""
    answer = officer.send(f"{place}/attachments", file=(NAME, PDF))
    page = officer.get(answer.headers["location"]).text
    assert "File attached." in page
    assert "Letter &lt;b&gt;of Jane.pdf</a>" in page
    assert re.search(rf"PDF, {len(PDF)} B, <time [^>]+>[^<]+</time> by <span title=\"key_", page)
    [path] = re.findall(r'<a href="(/admin/requests/\w+/attachments/att_\w+)">', page)
    saved = officer.get(path)
    assert (saved.content, saved.headers["content-type"]) == (PDF, "application/pdf")
    assert saved.headers["content-disposition"].startswith("attachment;")
    assert saved.headers["x-content-type-options"] == "nosniff"
    assert re.search(rf'<dialog id="delete-att_\w+".*?<form method="post" action="{path}/delete">', page, re.DOTALL)
    assert "Jane" not in officer.get(f"{place}/live").text
    answer = officer.post(f"{path}/delete")
    page = officer.get(answer.headers["location"]).text
    assert "File erased." in page
    assert "Jane" not in page
    assert officer.get(path).status_code == 404
    assert get(f"/deletion-requests/{place.rpartition('/')[2]}/attachments")["items"] == []


def test_a_refused_file_is_explained(officer: Browser, place: str) -> None:
    """A missing file or a file of an unsupported type is reported next to the form field. A form with a wrong CSRF
    token is refused, and an unknown request's page returns 404."""
    page = officer.send(f"{place}/attachments", file=("Jane.pdf", b"MZ"))
    assert page.status_code == 422
    assert 'id="file-fault">' in page.text
    assert "expected a PDF" in page.text
    assert officer.send(f"{place}/attachments").status_code == 422
    assert officer.send(f"{place}/attachments", csrf="0" * 64, file=(NAME, PDF)).status_code == 403
    assert officer.send("/admin/requests/dr_0/attachments", file=(NAME, PDF)).status_code == 404
    assert "Jane" not in officer.get(place).text


def test_attachments_are_hidden_from_readers(
    officer: Browser, somebody_with: Callable[..., Browser], place: str
) -> None:
    """A user who may not decide about requests sees no attachments and cannot read, add or delete any."""
    officer.send(f"{place}/attachments", file=(NAME, PDF))
    [path] = re.findall(r'<a href="(/admin/requests/\w+/attachments/att_\w+)">', officer.get(place).text)
    viewer = somebody_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    page = viewer.get(place).text
    assert "Attachments" not in page
    assert "Jane" not in page
    assert viewer.get(path).status_code == 403
    assert viewer.post(f"{path}/delete").status_code == 403
    assert viewer.send(f"{place}/attachments", file=(NAME, PDF)).status_code == 403
    assert officer.get(path).content == PDF
