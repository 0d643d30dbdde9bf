"""Uploads of people who asked to be forgotten."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from app.installations import Installation
from app.rows.blocks import Manifests
from lethe.contract.sets import Scope

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Upload = Callable[..., httpx.Response]
Refused = Callable[..., dict[str, Any]]


def test_rows_of_suppressed_people_are_refused(
    upload: Upload, forget: Make, get: Get, refused: Refused, stored: Callable[[], dict[str, int]]
) -> None:
    """An upload that contains rows of people who asked to be forgotten is refused as a whole; the error names the rows
    but not the people."""
    for person in ("p3", "p11"):
        forget(person)
    problem = refused(upload(), 409, "subject_suppressed")
    assert "2 rows" in problem["detail"]
    assert "4, 12" in problem["detail"]
    assert "p3" not in str(problem)
    assert (stored()["datasets"], stored()["files"]) == (0, 0)


def test_at_most_twenty_rows_are_named(
    npz_of: Callable[..., bytes], upload: Upload, forget: Make, refused: Refused
) -> None:
    """The error for an upload with 20,000 rows of a suppressed person lists at most twenty rows."""
    forget("p1")
    rows = 20_000
    x = np.random.default_rng(0).normal(size=(rows, 3))
    content = npz_of(x=x, y=(x[:, 0] > 0).astype(int), subject=np.array(["p1"] * rows))
    problem = refused(upload(content), 409, "subject_suppressed")
    assert problem["detail"].count(",") == 19 + 2


def test_rows_of_suppressed_people_can_be_skipped(upload: Upload, forget: Make, get: Get, refused: Refused) -> None:
    """With suppressed=skip, the remaining rows become a dataset that reports how many rows were skipped."""
    forget("p3")
    answer = upload(suppressed="skip")
    assert answer.status_code == 201
    made = answer.json()
    assert (made["num_suppressed"], made["num_records"], made["num_slots"]) == (1, 19, 19)
    assert get(f"/datasets/{made['id']}/subjects/p4") == {"num_records": 1}
    assert get("/suppressions")["items"][0]["dataset_id"] == "*"
    refused(upload(suppressed="sometimes"), 422, "input_invalid")


def test_suppressed_rows_are_hidden_without_the_scope(
    upload: Upload, forget: Make, get: Get, refused: Refused, key_with: Callable[..., dict[str, str]]
) -> None:
    """A key with only models:write learns neither which rows belong to suppressed people nor how many such rows there
    are. For every key, the audit log records how many rows matched, but names no person."""
    for person in ("p3", "p11"):
        forget(person)
    app = key_with(Scope.MODELS_WRITE)
    problem = refused(upload(headers=app), 409, "subject_suppressed")
    assert not re.search(r"\d", problem["detail"])
    assert upload(headers=app, suppressed="skip").status_code == 201
    knowing = key_with(Scope.MODELS_WRITE, Scope.ACCOUNTING_READ)
    assert "4, 12" in refused(upload(headers=knowing), 409, "subject_suppressed")["detail"]
    matches = get("/audit-log?action=suppressions.matched")["items"]
    assert [(match["object_id"], match["detail"]) for match in matches] == 3 * [(matches[0]["tenant_id"], {"rows": 2})]
    assert len({match["actor"] for match in matches}) == 2


def test_a_match_is_recorded_even_if_the_upload_fails(
    npz_of: Callable[..., bytes], upload: Upload, forget: Make, get: Get, refused: Refused
) -> None:
    """If a later row of an upload is invalid, the audit log still records that earlier rows matched suppressed
    people."""
    forget("p1")
    rows = 100_000
    x = np.random.default_rng(0).normal(size=(rows, 3))
    x[-1, 0] = np.nan
    subjects = np.array(["p1", *(f"q{row}" for row in range(1, rows))])
    refused(upload(npz_of(x=x, y=(x[:, 1] > 0).astype(int), subject=subjects)), 422, "row_invalid")
    assert [match["detail"] for match in get("/audit-log?action=suppressions.matched")["items"]] == [{"rows": 1}]


def test_an_upload_without_suppressed_people_keeps_every_row(upload: Upload) -> None:
    """An upload that contains no suppressed people keeps all its rows."""
    assert upload().json()["num_suppressed"] == 0


def test_rows_of_a_request_made_during_an_upload_are_not_stored(
    installation: Installation,
    upload: Upload,
    forget: Make,
    get: Get,
    refused: Refused,
    stored: Callable[[], dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a person's request arrives while their rows are being uploaded, the upload is refused and none of its rows are
    stored, even with suppressed=skip."""
    usual = Manifests.write

    def ask_meanwhile(*given: Any) -> str:
        forget("p3")
        return usual(*given)

    monkeypatch.setattr(Manifests, "write", ask_meanwhile)
    refused(upload(suppressed="skip"), 409, "subject_suppressed")
    assert (stored()["datasets"], stored()["files"]) == (0, 0)
    assert [match["detail"] for match in get("/audit-log?action=suppressions.matched")["items"]] == [{"rows": None}]
