"""Datasets on pages: uploaded with and without a schema, refused by line and column, and extended."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.conftest import npz, people
from tests.features.desk.browsing import HERE, Browser
from tests.tables import each

Get = Callable[[str], Any]
SCHEMA = b"""{"columns": {"age": {"kind": "numeric", "min": 0, "max": 120}, "who": {"role": "subject"},
  "paid": {"role": "label", "values": ["no", "yes"]}}}"""
OF_NUMBERS = b"""{"columns": {"age": {"kind": "numeric", "min": 0, "max": 120}, "who": {"role": "subject"},
  "cost": {"role": "target", "min": 0, "max": 9}}}"""
ROWS = "who,age,paid\nann,30,no\nbob,40,yes\ncid,50,no\n"


def _send(browser: Browser, path: str, *, origin: str = HERE, csrf: str | None = None, **parts: Any) -> httpx.Response:
    """Send a form with files, as browsers do without scripts."""
    files = {name: part for name, part in parts.items() if isinstance(part, tuple)}
    fields = {name: part for name, part in parts.items() if isinstance(part, str)}
    fields["csrf"] = browser.token() if csrf is None else csrf
    return browser.client.post(path, data=fields, files=files, headers={"Origin": origin}, follow_redirects=False)


def _csv(rows: str = ROWS) -> dict[str, Any]:
    return {"name": "customers", "file": ("rows.csv", rows.encode()), "schema": ("schema.json", SCHEMA)}


def test_a_file_becomes_a_dataset(officer: Browser, get: Get) -> None:
    """An upload leads to the dataset's page with its counts and its schema. The list shows the dataset too."""
    answer = _send(officer, "/admin/datasets/new", **_csv())
    assert answer.status_code == 303, answer.text
    page = officer.get(answer.headers["location"]).text
    assert "Dataset created." in page
    [made] = get("/datasets")["items"]
    assert (made["name"], made["num_records"], made["num_subjects"]) == ("customers", 3, 3)
    assert "0 to 120" in page
    assert made["id"] in officer.get("/admin/datasets").text


def test_a_file_of_numbers_becomes_a_dataset_with_a_target(officer: Browser, get: Get) -> None:
    """The dataset's page shows the target's range, whether the range comes from a schema or, for vectors, was entered
    in the form."""
    rows = {"file": ("rows.csv", b"who,age,cost\nann,20,1\nbob,30,2.5\n")}
    answer = _send(officer, "/admin/datasets/new", name="costs", schema=("schema.json", OF_NUMBERS), **rows)
    page = officer.get(answer.headers["location"]).text
    assert "the target" in page
    assert "Target: 0 to 9" in page
    assert "a target" in officer.get("/admin/datasets").text
    assert "a target" in officer.get("/admin/models/new").text
    vectors = {"name": "vectors", "file": ("rows.npz", npz()), "target": "-1, 2"}
    answer = _send(officer, "/admin/datasets/new", **vectors)
    assert "Target: -1 to 2" in officer.get(answer.headers["location"]).text
    counts = vectors | {"name": "counts", "target": "0, 9, counts"}
    answer = _send(officer, "/admin/datasets/new", **counts)
    assert "Counts: 0 to 9" in officer.get(answer.headers["location"]).text
    assert "counts" in officer.get("/admin/models/new").text
    for wrong, expected in {"5": "two numbers", "1, 2, 3": "two numbers", "low, 5": "a finite number"}.items():
        assert expected in _send(officer, "/admin/datasets/new", **vectors | {"target": wrong}).text


def test_columns_are_stated_in_the_form(officer: Browser, get: Get) -> None:
    """Without a schema file, the schema is built from the kind and the public range or values entered for each column.
    If a column's entry is missing or invalid, an error names the column and nothing is stored. The form proposes the
    same columns for the next file."""
    kinds = {"who": ("subject", ""), "age": ("number", "0..120"), "paid": ("label", "no, yes")}

    def send(**changed: tuple[str, str]) -> httpx.Response:
        columns = json.dumps([[name, *facts] for name, facts in (kinds | changed).items()])
        file = ("rows.csv", ROWS.encode())
        return _send(officer, "/admin/datasets/new", name="customers", columns=columns, file=file)

    for wrong in (("number", "120..0"), ("date", "0..120"), ("category", " , "), ("counts", "")):
        assert ">column age:</strong> Expected a public range" in send(age=wrong).text
    assert _send(officer, "/admin/datasets/new", **_csv() | {"schema": ("", b"")}, columns="[1]").status_code == 422
    assert get("/datasets")["items"] == []
    assert send().status_code == 303
    columns = get("/datasets")["items"][0]["schema"]["columns"]
    assert columns["paid"] == {"role": "label", "values": ["no", "yes"]}
    assert (columns["age"]["min"], columns["age"]["max"], columns["age"]["outside"]) == (0, 120, "clip")
    assert "&#34;age&#34;: [&#34;number&#34;, &#34;0.0..120.0&#34;]" in officer.get("/admin/datasets/new").text


def test_wrong_rows_are_named_by_line_and_column(officer: Browser, get: Get) -> None:
    """For each invalid row, the page states the line, the column and what was expected, but never the content of the
    row. Nothing is stored."""
    answer = _send(officer, "/admin/datasets/new", **_csv(ROWS + "dan,secret,no\neve,20,perhaps\n"))
    assert answer.status_code == 422
    assert ">line 5, column age:</strong>" in answer.text
    assert ">line 6, column paid:</strong>" in answer.text
    assert "secret" not in re.sub(r"(?s)<main.*?data-fault>", "", answer.text)
    assert "perhaps" not in answer.text
    assert 'value="customers"' in answer.text
    assert get("/datasets")["items"] == []


@each(("without", "says"), [("file", "Expected a file with rows"), ("name", "Fill this in."), ("schema", "schema")])
def test_a_missing_field_is_named(officer: Browser, without: str, says: str) -> None:
    """If a required field of the form is left empty, the error names the field."""
    empty: Any = "" if without == "name" else ("", b"")
    answer = _send(officer, "/admin/datasets/new", **(_csv() | {without: empty}))
    assert answer.status_code == 422
    assert says in answer.text


def test_uploaded_files_are_never_stored_unencrypted(
    officer: Browser, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is uploaded through a page is spooled like a file uploaded through the API: only in the data folder
    and encrypted, whatever the order of the form's fields."""
    # A web framework would spool the file in this folder.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    rows = "who,age,paid\n" + "".join(f"ann{n},30,{'yes' if n % 2 else 'no'}\n" for n in range(100_000))
    answer = _send(officer, "/admin/datasets/new", **_csv(rows))
    assert answer.status_code == 303, answer.text


def test_forged_uploads_are_refused(officer: Browser, somebody_with: Callable[..., Browser], get: Get) -> None:
    """An upload form that comes from another site, lacks its CSRF token, or is sent with a read-only key gets a 403,
    and no dataset is created."""
    assert _send(officer, "/admin/datasets/new", origin="https://evil.example", **_csv()).status_code == 403
    assert _send(officer, "/admin/datasets/new", csrf="0" * 64, **_csv()).status_code == 403
    reader = somebody_with(Scope.MODELS_READ)
    assert reader.get("/admin/datasets/new").status_code == 403
    assert "Upload" not in reader.get("/admin/datasets").text
    assert _send(reader, "/admin/datasets/new", **_csv()).status_code == 403
    assert get("/datasets")["items"] == []


def test_rows_are_added_to_a_dataset(
    officer: Browser, new_dataset: Callable[..., Any], forget: Callable[..., Any], work: Callable[[], int], get: Get
) -> None:
    """Added rows occupy slots of forgotten people once a worker has written them. More rows than free slots are
    refused."""
    path = f"/admin/datasets/{new_dataset()['id']}"
    assert _send(officer, f"{path}/records", file=("rows.npz", people("new"))).status_code == 409
    forget("p2")
    work()
    assert "1 slot is free" in re.sub(r"\s+", " ", officer.get(path).text)
    refused = _send(officer, f"{path}/records", file=("rows.npz", people("new", "newer")))
    assert "The dataset has too few free slots" in refused.text
    answer = _send(officer, f"{path}/records", file=("rows.npz", people("new", "p2")), suppressed="skip")
    assert answer.headers["location"].endswith("?done=added&left_out=1")
    assert "1 row of people who asked to be forgotten was left out" in officer.get(answer.headers["location"]).text
    work()
    assert "Applied" in officer.get(f"{path}/live").text


def test_an_unknown_dataset_is_a_404(officer: Browser, installation: Installation) -> None:
    """Pages and uploads for unknown ids return 404."""
    assert officer.get("/admin/datasets/ds_none").status_code == 404
    assert officer.get("/admin/datasets/ds_none/live").status_code == 404
    assert _send(officer, "/admin/datasets/ds_none/records", file=("rows.npz", npz())).status_code == 404


def test_questionable_ids_cause_a_warning(officer: Browser) -> None:
    """The page after an upload shows a warning with advice only if subject ids look like e-mail addresses or rounded
    numbers."""
    mails = "who,age,paid\nann@example.org,30,no\nbob@example.org,40,yes\ncid@example.org,50,no\n"
    page = officer.get(_send(officer, "/admin/datasets/new", **_csv(mails)).headers["location"]).text
    assert "Most subject ids look like e-mail addresses" in page
    assert "ann@example.org" not in page
    lines = (f"{486_000_000_000_000 + row}000,{row},{'no' if row % 2 else 'yes'}\n" for row in range(12))
    numbers = "who,age,paid\n" + "".join(lines)
    page = officer.get(_send(officer, "/admin/datasets/new", **_csv(numbers)).headers["location"]).text
    assert "nothing but zeros after the 15th digit" in page
    page = officer.get(_send(officer, "/admin/datasets/new", **_csv()).headers["location"]).text
    assert 'class="problem" role="status"' not in page
