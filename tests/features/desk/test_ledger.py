"""The ledger of all models on a page: recomputed and downloaded."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.installations import Installation
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def published(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> None:
    new_model(new_dataset()["id"])
    work()


@pytest.mark.usefixtures("published")
def test_the_ledger_is_recomputed(officer: Browser, installation: Installation) -> None:
    """The page's verification reports that the whole ledger is valid or, if it was manipulated, names the fault."""
    assert "Verify now" in officer.get("/admin/ledger").text
    page = officer.post("/admin/ledger/verify").text
    assert "The ledger is valid." in page
    assert "signed up to link 1 of 1" in page
    with installation.database.engine.connect() as connection:
        connection.execute(sa.text("DROP TRIGGER ledger_links_no_update"))
        connection.execute(sa.text("UPDATE ledger_links SET hash = 'a'"))
        connection.commit()
    page = officer.post("/admin/ledger/verify").text
    assert "The ledger does not hold." in page
    assert "ledger link 1" in page


@pytest.mark.usefixtures("published")
def test_head_and_ledger_are_downloaded(officer: Browser, get: Get) -> None:
    """The signed head and the ledger can be downloaded."""
    answer = officer.get("/admin/ledger/head.json")
    assert "attachment" in answer.headers["content-disposition"]
    assert json.loads(answer.text)["jws"] == get("/ledger/head")["jws"]
    answer = officer.get("/admin/ledger/ledger.jsonl")
    assert "attachment" in answer.headers["content-disposition"]
    assert json.loads(answer.text.splitlines()[-1]) == {"head": get("/ledger/head")["jws"]}
