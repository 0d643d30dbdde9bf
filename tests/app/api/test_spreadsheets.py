"""CSV as spreadsheets write it: uploads and batches of deletion requests either accept it or state what to change."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.app.api.test_datasets import CSV, SCHEMA
from tests.tables import each

REQUESTS = "subject_id,regulation\nann,gdpr\nbob,gdpr\n"
KINDS: dict[str, tuple[Callable[[str], bytes], str]] = {
    "semicolons": (lambda text: text.replace(",", ";").encode(), "has semicolons between fields"),
    "semicolons after a mark": (lambda text: text.replace(",", ";").encode("utf-8-sig"), "has semicolons between"),
    "semicolons and Windows' ends of lines": (
        lambda text: text.replace(",", ";").replace("\n", "\r\n").encode(),
        "has semicolons between fields",
    ),
    "tabs": (lambda text: text.replace(",", "\t").encode(), "has tabs between fields"),
    "a line for Excel": (lambda text: b"sep=,\r\n" + text.encode(), "begins with a line sep= for Excel"),
    "UTF-16": (lambda text: text.encode("utf-16"), "is in UTF-16"),
    "UTF-16 of the other order": (lambda text: b"\xfe\xff" + text.encode("utf-16-be"), "is in UTF-16"),
    "UTF-16 without a mark": (lambda text: text.encode("utf-16-le"), "is in UTF-16"),
    "a workbook": (lambda text: b"PK\x03\x04" + text.encode(), "is a workbook"),
    "a compressed file": (lambda text: gzip.compress(text.encode()), "is compressed"),
}


@each("kind", KINDS)
def test_formats_other_than_csv_are_refused(
    gateway: TestClient,
    upload: Callable[..., httpx.Response],
    refused: Callable[..., dict[str, Any]],
    stored: Callable[[], dict[str, int]],
    nothing: dict[str, int],
    kind: str,
) -> None:
    """A file that is not CSV is refused; the error names its format and explains how to save it as CSV. Nothing from
    the file is stored."""
    write, fault = KINDS[kind]
    problems = [
        refused(upload(write(CSV), filename="rows.csv", schema=json.dumps(SCHEMA)), 422, "input_invalid"),
        refused(gateway.post("/v1/deletion-requests.csv", content=write(REQUESTS)), 422, "input_invalid"),
    ]
    for problem in problems:
        assert fault in problem["detail"]
        assert "save it as CSV in UTF-8, with commas between fields and points before decimals" in problem["detail"]
    assert [problem["errors"][0]["path"] for problem in problems] == ["file", "body"]
    assert stored() == nothing


@pytest.mark.parametrize(
    "write", [lambda text: text.encode("utf-8-sig"), lambda text: text.replace("\n", "\r").encode()]
)
def test_byte_order_marks_and_line_ends_are_accepted(
    gateway: TestClient, upload: Callable[..., httpx.Response], write: Callable[[str], bytes]
) -> None:
    """A byte order mark and the line endings of every operating system are accepted, and the first column's name is
    unaffected."""
    rows = upload(write(CSV), filename="rows.csv", schema=json.dumps(SCHEMA)).json()
    requests = gateway.post("/v1/deletion-requests.csv", content=write(REQUESTS)).json()
    assert (rows["num_records"], requests["accepted"]) == (3, 2)


def test_windows_code_pages_are_refused_with_the_line(
    gateway: TestClient, upload: Callable[..., httpx.Response], refused: Callable[..., dict[str, Any]]
) -> None:
    """If a file is not valid UTF-8, the error names the line of the first invalid byte and explains how to save the
    file."""
    content = CSV.replace("ann,33", "Zoë,33").encode("cp1252")
    rows = refused(upload(content, filename="rows.csv", schema=json.dumps(SCHEMA)), 422, "row_invalid")
    assert (rows["errors"][0]["path"], "save it as CSV in UTF-8" in rows["detail"]) == ("line 4", True)
    content = REQUESTS.replace("bob", "Zoë").encode("cp1252")
    requests = refused(gateway.post("/v1/deletion-requests.csv", content=content), 422, "input_invalid")
    assert (requests["errors"][0]["path"], "save it as CSV in UTF-8" in requests["detail"]) == ("line 3", True)


def test_a_decimal_comma_is_refused_with_its_place(
    upload: Callable[..., httpx.Response], refused: Callable[..., dict[str, Any]]
) -> None:
    """A number with a decimal comma is refused; the error states its location and advises using a decimal point."""
    content = CSV.replace("31", '"31,5"').encode()
    problem = refused(upload(content, filename="rows.csv", schema=json.dumps(SCHEMA)), 422, "row_invalid")
    expected = "expected a finite number, with a point before decimals"
    assert problem["errors"] == [{"path": "line 2, column age", "message": expected}]
