"""Every page in a real browser, of an installation in which everything has happened."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from app.installations import Installation
from lethe.features.webhooks.contract import DeliveryStatus
from tests.features.desk import addresses
from tests.features.desk.browser.browsing import A4, OF_SIZE, SIZES, Site, Visitor
from tests.features.together.test_authorisation import delivered


@pytest.fixture
def seen(installation: Installation, site: Site, work: Callable[[], int]) -> list[str]:
    """Return the address of each page, including the pages of requests in several states."""
    ids = addresses.happened(installation, site.api, work)
    delivered(installation, ids["request_id"], status=DeliveryStatus.DEAD)
    waits = site.forget("p3", identity_verified=False, external_id="a-rather-long-case-number-2026-000017")
    site.api.post(f"/v1/deletion-requests/{waits}/notes", json={"text": "Called back."}).raise_for_status()
    rejected = site.forget("p4", identity_verified=False)
    refusal = {"ground": "legal_claims", "explanation": "A case is before court."}
    site.api.post(f"/v1/deletion-requests/{rejected}/reject", json=refusal).raise_for_status()
    accepted = site.forget("p5", submitted_at="2026-01-01T00:00:00Z")
    late = site.forget("p6", identity_verified=False, regulation="ccpa", submitted_at="2026-01-01T00:00:00Z")
    waiting = {"model_id": site.model(ids["dataset_id"], name="a model that waits to be learned for the first time")}
    requests = [{"request_id": one} for one in (waits, rejected, accepted, late)]
    others = {"/admin/requests/{request_id}": requests, "/admin/models/{model_id}": [waiting]}
    seen = [addresses.of(path, ids | other) for path in addresses.paths() for other in [{}, *others.get(path, [])]]
    return [*seen, "/verify", "/verify?code=0123-4567-89ab-cdef-0123"]


def pages(somebody: Visitor, seen: list[str]) -> Iterator[str]:
    """Open each address that leads to a page, and wait until the page's deferred parts have loaded."""
    for address in seen:
        answer = somebody.page.request.get(somebody.site.url + address)
        if not answer.headers.get("content-type", "").startswith("text/html") or "<html" not in answer.text():
            # The address leads to a file or to a part of a page.
            continue
        somebody.opens(address)
        expect(somebody.page.locator(".later")).to_have_count(0)
        yield address
        faults = [one for one in somebody.complaints if answer.ok or str(answer.status) not in one]
        assert not faults, (address, faults)
        somebody.complaints.clear()


_BEYOND_THE_PAPER = """() => [...document.querySelectorAll('main *, .paper *')]
    .filter(one => one.checkVisibility() && !one.closest('.curves, .unseen') && one.getBoundingClientRect().width)
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
    .slice(0, 3).map(one => one.outerHTML.slice(0, 120))"""
_LEFT_ON_PAPER = """() =>
    [...document.querySelectorAll('.bar, .skip, main button:not(.explained), main form.form[method=post]')]
    .filter(one => one.checkVisibility()).map(one => one.outerHTML.slice(0, 120))"""
_BEYOND_ITS_BOX = """() => [...document.querySelectorAll('.facts dd, .tiles > *, .columns > *')]
    .filter(one => one.checkVisibility() && getComputedStyle(one).overflowX === 'visible')
    .filter(one => one.scrollWidth > one.clientWidth + 1)
    .slice(0, 3).map(one => one.outerHTML.slice(0, 160))"""
_FIRST_CONTENT = """() => {
    const content = [...document.querySelectorAll('main *')].filter(one => !one.closest('.head'))
        .filter(one => one.checkVisibility() && one.getBoundingClientRect().height && !one.children.length);
    const first = Math.min(...content.map(one => one.getBoundingClientRect().bottom));
    return first <= innerHeight || !content.length ? [] : [`${innerWidth}: the first content ends at ${first}`];
}"""
_NARROW = 1160
_SCREENS = ((1280, 900), (1440, 900), (1920, 900), (_NARROW, 900), (1024, 768), (390, 844))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_page_is_accessible(officer: Visitor, seen: list[str]) -> None:
    """Each page is checked in German, which has the longest words. In the light and the dark theme, axe-core reports no
    faults. No page is too wide, the first content of each page is visible without scrolling, and on a narrow laptop no
    text overflows its box. On a phone every scrolling region can be reached by keyboard. On A4 nothing exceeds the
    margins and no interactive control is printed."""
    found = []
    officer.opens("/admin")
    officer.page.get_by_role("button", name="Deutsch").click()
    expect(officer.page.locator("html[lang=de]")).to_be_attached()
    for address in pages(officer, seen):
        for examine in (officer.faults, lambda: on_screens(officer), lambda: on_paper(officer.page)):
            found += [f"{address}: {fault}" for fault in officer.at_rest(examine)]
    assert not found, "\n".join(found)


def on_screens(somebody: Visitor) -> list[str]:
    """Return the elements that are too wide, not visible at once, larger than their box, or not scrollable by keyboard.
    The window is left at the size of a phone."""
    page, found = somebody.page, []
    for width, height in _SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        found += [f"{width}: {elements}" for elements in somebody.overflow()]
        found += page.evaluate(_FIRST_CONTENT)
        if width == _NARROW:
            found += [f"over its box: {one}" for one in page.evaluate(_BEYOND_ITS_BOX)]
    return found + somebody.violations(OF_SIZE)


def on_paper(page: Page) -> list[str]:
    """Return the elements that extend beyond the edge of A4, and the interactive controls that are printed."""
    page.emulate_media(media="print")
    page.set_viewport_size({"width": A4, "height": 900})
    found = [f"on paper: {one}" for fault in (_BEYOND_THE_PAPER, _LEFT_ON_PAPER) for one in page.evaluate(fault)]
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": SIZES["laptop"], "height": 900})
    return found
