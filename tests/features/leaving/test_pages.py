"""Reasons for leaving, on a page: estimates with error bars, and no personal data."""

import re

import pytest
from fastapi.testclient import TestClient

from tests.features.desk.browsing import Browser


@pytest.fixture
def answered(gateway: TestClient) -> None:
    """Send seven answers, distributed as expected if everybody's true reason is the cost, and one from a client with
    other odds."""
    answers = ["cost"] * 3 + ["privacy", "not_using", "switched", "other"]
    for answer, odds in [*((one, 3) for one in answers), ("other", 20)]:
        body = {"answer": answer, "odds": odds}
        assert gateway.post("/v1/leaving-reasons", json=body).status_code == 200


def rows(page: str) -> list[list[str]]:
    """Return the text of every cell in the page's tables, row by row."""
    lines = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL) for line in lines]
    return [[re.sub(r"<.*?>", "", cell, flags=re.DOTALL).strip() for cell in line] for line in cells]


def test_estimates_are_shown_by_odds(officer: Browser, answered: None) -> None:
    """For each odds value that clients used, a table lists every reason with its share, interval and count."""
    page = officer.get("/admin/leaving-reasons").text
    head, *first = rows(page)[:6]
    assert head == ["Reason", "0 % to 100 %", "Share", "Between", "Sent"]
    by_reason = {row[0]: row[2:] for row in first}
    assert by_reason["Cost"] == ["100 %", "0 % to 100 %", "3"]
    assert by_reason["Privacy"] == ["0 %", "0 % to 100 %", "1"]
    assert "7 answers" in page
    assert "ε = 1.10" in page
    other = {row[0]: row[2:] for row in rows(page)[7:]}
    assert other["Another reason"][0] == "121 %"
    assert other["Privacy"][0] == "−5 %"


def test_an_empty_survey_is_explained(officer: Browser) -> None:
    """Without answers, the page shows an empty state and, if the reader chose a short period, suggests a longer one. An
    unknown period is refused."""
    assert "No answers yet" in officer.get("/admin/leaving-reasons").text
    assert "Choose a longer period" in officer.get("/admin/leaving-reasons?weeks=13").text
    assert officer.get("/admin/leaving-reasons?weeks=5").status_code == 422
