"""Every page, once on each database, of an installation in which everything has happened."""

import html
import re
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from tests.features.desk import addresses, catalogue
from tests.features.desk.browsing import Browser, inline


@pytest.fixture
def ids(installation: Installation, gateway: TestClient, work: Callable[[], int]) -> dict[str, str]:
    return addresses.happened(installation, gateway, work)


@pytest.mark.soak
def test_every_page_in_german(officer: Browser, ids: dict[str, str]) -> None:
    """Every URL returns a page or a file. No page contains inline scripts or styles. No page shows English text that
    has a German translation, except for API terms, which are marked up as English."""
    assert len(addresses.paths()) > 30
    german = {one.id: one.string for one in catalogue.read(catalogue.path_of("de"), "de")}
    english = {text for text, said in german.items() if isinstance(text, str) and len(text) > 12 and said != text}
    for path in addresses.paths():
        answer = officer.get(addresses.of(path, ids), **{"Accept-Language": "de-DE,de;q=0.9"})
        assert answer.status_code == addresses.ELSEWHERE.get(path, 200), path
        if answer.status_code != 200 or not answer.headers["content-type"].startswith("text/html"):
            continue
        assert not inline(answer.text), path
        assert "<html" not in answer.text or '<html lang="de">' in answer.text, path
        bare = re.sub(r'<(\w+)[^>]* lang="en">.*?</\1>', "", answer.text, flags=re.S)
        bare = re.sub(r"<(pre|code)\b.*?</\1>", "", bare, flags=re.S)
        read = html.unescape("\n".join([re.sub(r"<[^>]*>", "\n", bare), *re.findall(r'="([^"]*)"', bare)]))
        lines = {" ".join(line.split()) for line in read.splitlines()}
        assert not lines & english, path


def test_filters_and_searches_return_pages(officer: Browser, ids: dict[str, str]) -> None:
    """Filtered and sorted lists, searches for people, verifications and previews all return pages."""
    for filters in (
        "status=completed",
        "regulation=gdpr",
        "due=soon",
        "order=deadline",
        "regulation=gdpr&status=accepted",
    ):
        assert officer.get(f"/admin/requests?{filters}").status_code == 200
    assert ids["request_id"] in officer.get("/admin/requests?regulation=gdpr&status=completed").text
    for by, sought in (("subject_id", "p1"), ("external_id", "case-1")):
        assert ids["request_id"] in officer.post("/admin/requests/search", by=by, sought=sought).text
    assert officer.post("/admin/suppressions/search", subject_id="p1").status_code == 200
    assert "The ledger is valid." in officer.post(f"/admin/models/{ids['model_id']}/ledger/verify").text
    assert officer.post(f"/admin/certificates/{ids['certificate_id']}/verify").status_code == 200
    assert officer.post("/admin/audit-log/verify").status_code == 200
    assert "steps to learn" in officer.post("/admin/models/new/preview", dataset_id=ids["dataset_id"]).text
