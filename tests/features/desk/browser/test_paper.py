"""Printed pages: everything fits the paper, in light colours."""

import io
import unicodedata
from typing import Any

import pytest
from playwright.sync_api import Error, Page, expect
from pypdf import PdfReader

from tests.faults.processes import Child
from tests.features.desk.browser.browsing import SIZES, Visitor

LIGHT = {0x0B6E75, 0xB4531B, 0x5B4AA8}
DARK = {0x5CC8D0, 0xF3A878, 0xB7A9F5}
"""The colours of a plot's first lines, in either scheme."""

A4_WITH_WIDE_MARGINS = 642
_MAX_PRINTS = 3
# Chromium says only this when its printing service, a process of its own, does not start or ends on a busy machine.
# A page cannot cause the message: Chromium names an invalid range or size of pages by other messages.
_REFUSAL = "Printing failed"
DRAWN = """() => [...document.querySelectorAll(".curves canvas")].map((canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] === 255) colours.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
  return { width: canvas.width / devicePixelRatio, colours: [...colours] };
})"""


def drawn(page: Page) -> list[dict[str, Any]]:
    """Return the width and the colours of each plot."""
    found: list[dict[str, Any]] = page.evaluate(DRAWN)
    return found


def are_light(plots: list[dict[str, Any]]) -> bool:
    return all(LIGHT & set(plot["colours"]) and not DARK & set(plot["colours"]) for plot in plots)


def are_dark(plots: list[dict[str, Any]]) -> bool:
    return all(DARK & set(plot["colours"]) and not LIGHT & set(plot["colours"]) for plot in plots)


def printed(page: Page) -> bytes:
    """Return the page as a PDF on A4."""
    for _ in range(_MAX_PRINTS - 1):
        try:
            return page.pdf(format="A4")
        except Error as error:
            if _REFUSAL not in error.message:
                raise
    return page.pdf(format="A4")


def prints_its_plots(visitor: Visitor) -> None:
    """Check that a page's plots are printed completely and in light colours even from a dark screen, and are restored
    afterwards."""
    page = visitor.page
    before = drawn(page)
    assert before
    assert are_dark(before)
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = ({DRAWN})(); }}, {{ once: true }})")
    printed(page)
    on_paper = page.evaluate("printed")
    assert len(on_paper) == len(before)
    assert are_light(on_paper)
    assert all(600 <= plot["width"] <= A4_WITH_WIDE_MARGINS for plot in on_paper)
    assert drawn(page) == before
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": A4_WITH_WIDE_MARGINS, "height": 900})
    places = page.locator(".curves")
    expect(places).to_have_count(len(before))
    assert all(place.evaluate("place => place.scrollWidth <= place.clientWidth") for place in places.all())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for role in ("button", "slider", "navigation"):
        for control in page.locator(":not(.explained)").and_(page.get_by_role(role)).filter(visible=True).all():  # type: ignore[arg-type]
            assert control.get_attribute("aria-label") == "What the axis shows"
    page.emulate_media(media="screen", color_scheme="dark")
    page.set_viewport_size({"width": SIZES["laptop"], "height": 900})
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert drawn(page) == before
    assert visitor.complaints == []


def sheets(page: Page) -> list[str]:
    """Return the text of each A4 sheet, with single spaces and without ligatures."""
    document = PdfReader(io.BytesIO(printed(page)))
    return [" ".join(unicodedata.normalize("NFKC", sheet.extract_text()).split()) for sheet in document.pages]


@pytest.mark.soak
def test_a_printed_case_shows_ids_owner_and_date(officer: Visitor, worker: Child) -> None:
    """A printed case shows its full ids, its owner and the date, but no interactive controls. The same applies to the
    page on which a certificate was verified."""
    site, page = officer.site, officer.page
    site.live_model()
    person = {"name": "Maria Lopez", "email": "maria@example.com", "role": "officer"}
    site.api.post("/v1/users", json=person).raise_for_status()
    made = site.forget("p1", external_id="case-1")
    case = site.until(f"/v1/deletion-requests/{made}", lambda one: one if one["status"] == "completed" else None)
    note = {"text": "Called back at noon."}
    site.api.post(f"/v1/deletion-requests/{made}/notes", json=note).raise_for_status()
    (done,) = case["models"]
    officer.opens(f"/admin/requests/{made}")
    expect(page.get_by_role("button", name="Add note")).to_be_visible()
    expect(page.locator(".later")).to_have_count(0)
    read = " ".join(sheets(page))
    ids = (made, case["subject_ref"], done["model_id"], done["run_id"], done["certificate_id"])
    for there in (*ids, "default", "Opened", "case-1", "Called back at noon.", "What it does not prove", "1 / "):
        assert there in read, there
    for gone in (
        "Log out",
        "Skip to",
        "Menu",
        "Next step",
        "Add note",
        "Attach",
        "Assign",
        "Preview reply",
        "Copy",
    ):
        assert gone not in read, gone
    plain = page.context.browser.new_context(java_script_enabled=False)  # type: ignore[union-attr]  # it has one
    plain.add_cookies(page.context.cookies())  # type: ignore[arg-type]  # as it gave them
    verified = plain.new_page()
    verified.goto(f"{site.url}/admin/requests/{made}")
    verified.get_by_role("button", name="Verify now").click()
    # A click waits for the answer to begin, and a page is printed as far as it has come.
    expect(verified.get_by_text("Verified.").first).to_be_visible()
    verified.wait_for_load_state()
    (read,) = sheets(verified)
    assert all(there in read for there in ("default", "Opened", done["certificate_id"], "Verified."))
    assert "Log out" not in read
    plain.close()


@pytest.mark.soak
def test_a_printed_model_shows_its_curves(officer: Visitor, worker: Child) -> None:
    """A printed model shows its complete curves in light colours even if the screen is dark, and the dark theme returns
    afterwards. The print contains the full id and only the selected view, but no buttons."""
    page = officer.page
    made = officer.site.live_model()
    page.emulate_media(color_scheme="dark")
    officer.opens(f"/admin/models/{made}")
    expect(page.locator("#curve canvas")).to_have_count(2)
    expect(page.locator(".later")).to_have_count(0)
    prints_its_plots(officer)
    page.emulate_media(media="print")
    expect(page.get_by_text("Equal width per run")).to_be_visible()
    expect(page.get_by_text("Equal width per step")).to_be_hidden()
    page.emulate_media(media="null")
    officer.opens(f"/admin/models/{made}")
    read = " ".join(sheets(page))
    for there in (made, "default", "Opened", "churn", "Residual influence"):
        assert there in read, there
    for gone in ("Log out", "Canary test …", "Retire", "Verify now", "Compare two versions", "All rehearsals"):
        assert gone not in read, gone


def test_printed_pages_name_their_model_and_inputs(officer: Visitor) -> None:
    """A printed list of versions names its model, and a printed calculator shows the inputs. No button is printed."""
    made = officer.site.model(officer.site.upload())
    officer.opens(f"/admin/models/{made}/versions")
    assert "churn Versions" in " ".join(sheets(officer.page))
    officer.opens("/admin/calculator/gdp_eps?mu=0.4125&delta=1e-5")
    read = " ".join(sheets(officer.page))
    assert "0.4125" in read
    assert "Evaluate" not in read


@pytest.mark.soak
def test_a_long_table_repeats_its_head(officer: Visitor) -> None:
    """A long table repeats its header on every sheet and never splits a row."""
    cases = [officer.site.forget(f"p{n}", external_id=f"case-{n:03}", identity_verified=False) for n in range(70)]
    officer.opens("/admin/requests?size=100")
    expect(officer.page.get_by_role("link", name="case-000")).to_be_visible()
    read = sheets(officer.page)
    assert len(read) > 1
    for sheet in read:
        assert ("case-" in sheet) == ("Models done" in sheet), sheet
    for number, case in enumerate(cases):
        assert [f"case-{number:03}" in sheet for sheet in read] == [case in sheet for sheet in read]
