"""Datasets: uploaded, refused by line and column, and shown."""

import pytest
from playwright.sync_api import FilePayload, expect

from tests.conftest import people
from tests.faults.processes import wait_until
from tests.features.desk.browser.browsing import Site, Visitor

SCHEMA = b"""{"columns": {"age": {"kind": "numeric", "min": 0, "max": 120}, "who": {"role": "subject"},
  "plan": {"kind": "categorical", "values": ["free", "plus"]}, "left": {"role": "label", "values": ["no", "yes"]}}}"""
ROWS = "".join(f"p{n},{20 + n % 60},{'free' if n % 3 else 'plus'},{'yes' if n % 2 else 'no'}\n" for n in range(200))
HEADER = "who,age,plan,left\n"


def _file(name: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


def _fills(visitor: Visitor, rows: str) -> None:
    page = visitor.page
    page.get_by_label("Name").fill("customers")
    page.get_by_label("Schema", exact=True).set_input_files(_file("schema.json", SCHEMA))
    page.get_by_label("Rows", exact=True).set_input_files(_file("rows.csv", (HEADER + rows).encode()))


def test_a_corrected_file_becomes_a_dataset(officer: Visitor) -> None:
    """An engineer uploads a file with invalid rows, sees which rows are invalid, uploads a corrected file and sees the
    new dataset."""
    page = officer.page
    officer.goes_to("Datasets")
    expect(page.get_by_text("Nothing has been uploaded yet")).to_be_visible()
    officer.shows()
    page.get_by_role("link", name="Upload a dataset").click()
    officer.shows()
    _fills(officer, ROWS + "eve,hidden,free,no\nmia,30,gold,no\n")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("line 202, column age")).to_be_visible()
    expect(page.get_by_text("line 203, column plan")).to_be_visible()
    assert "hidden" not in page.locator("[data-fault]").inner_text()
    # The browser logs the status 422, which is expected.
    officer.complaints[:] = [said for said in officer.complaints if "422" not in said]
    officer.shows("upload-refused")
    _fills(officer, ROWS)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("Dataset created.")).to_be_visible()
    expect(page.get_by_role("heading", name="customers")).to_be_visible()
    expect(page.get_by_text("0 to 120")).to_be_visible()
    officer.shows("dataset")


def test_a_schema_is_proposed(officer: Visitor) -> None:
    """Choosing a CSV file fills the form with its columns. An engineer enters the ranges and uploads the file. The next
    file with the same columns needs no further input."""
    page = officer.page
    for name in ("first", "second"):
        officer.opens("/admin/datasets/new")
        page.get_by_label("Name").fill(name)
        page.get_by_label("Rows", exact=True).set_input_files(_file("rows.csv", (HEADER + ROWS).encode()))
        expect(page.get_by_label("What who is")).to_have_value("subject")
        if name == "first":
            page.get_by_label("Range or values of age").fill("0..120")
            page.get_by_label("What plan is").select_option("category")
            page.get_by_label("Range or values of plan").fill("free, plus")
            page.get_by_label("What left is").select_option("label")
            page.get_by_label("Range or values of left").fill("no, yes")
        expect(page.get_by_label("Range or values of left")).to_have_value("no, yes")
        officer.shows("upload", at="main")
        page.get_by_role("button", name="Upload").click()
        expect(page.get_by_text("Dataset created.")).to_be_visible()


@pytest.mark.soak
def test_a_bar_shows_the_upload_progress(officer: Visitor) -> None:
    """A progress bar is shown during an upload. A file that is too large is not sent at all."""
    page = officer.page
    officer.opens("/admin/datasets/new")
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    slow = {"offline": False, "latency": 20, "downloadThroughput": -1, "uploadThroughput": 50_000}
    session.send("Network.emulateNetworkConditions", slow)
    _fills(officer, ROWS * 300)
    page.get_by_role("button", name="Upload").click()
    bar = page.get_by_label("Upload progress")
    expect(bar).to_be_visible()
    wait_until(lambda: bar.evaluate("bar => bar.value > 0.1"))
    expect(page.get_by_role("button", name="Upload")).to_be_disabled()
    session.send("Network.emulateNetworkConditions", slow | {"uploadThroughput": -1})
    officer.page.wait_for_url("**/admin/datasets/ds_*", timeout=400_000)
    officer.opens("/admin/datasets/new")
    page.evaluate("document.querySelector('form[data-upload]').dataset.upload = 100")
    _fills(officer, ROWS)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("Nothing was sent.")).to_be_visible()
    assert officer.complaints == []


def test_an_upload_is_not_sent_without_a_gateway(officer: Visitor) -> None:
    """If the gateway cannot be reached, an upload is not sent, the page explains this, and the form keeps its input."""
    officer.opens("/admin/datasets/new")
    _fills(officer, ROWS)
    officer.site.gateway.kill()
    officer.page.get_by_role("button", name="Upload").click()
    expect(officer.page.get_by_text("The gateway does not respond")).to_be_in_viewport()
    expect(officer.page.get_by_label("Name")).not_to_have_value("")
    expect(officer.page.get_by_role("button", name="Upload")).to_be_enabled()


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
def test_rows_are_added(officer: Visitor, site: Site) -> None:
    """Added rows go into the slots of forgotten people. The page updates by itself once a worker has written the
    rows."""
    model = site.live_model()
    dataset = site.api.get(f"/v1/models/{model}").json()["dataset_id"]
    made = site.forget("p1")
    site.until(f"/v1/deletion-requests/{made}", lambda request: request["status"] == "completed")
    officer.opens(f"/admin/datasets/{dataset}")
    expect(officer.page.get_by_text("1 slot is free")).to_be_visible()
    officer.page.get_by_label("Rows", exact=True).set_input_files(_file("rows.npz", people("new")))
    officer.page.get_by_role("button", name="Add").click()
    expect(officer.page.get_by_text("Rows accepted.")).to_be_visible()
    expect(officer.page.get_by_text("Applied")).to_be_visible(timeout=400_000)
    officer.shows()
