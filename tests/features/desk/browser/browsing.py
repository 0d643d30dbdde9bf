"""A real browser with a real gateway and a real worker: what people do, and faults of the pages."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Error, Page, Playwright, expect

from app.config import Settings
from tests.conftest import classes_of, npz
from tests.faults import processes

AXE = Path(__file__).parent / "axe" / "axe.min.js"
TOUR = Path(__file__).parents[4] / "docs" / "tour"
SIZES = {"phone": 390, "laptop": 1280, "wide": 1920}
A4 = 680
"""Width of the paper between the margins of our pages."""
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_CUT_OFF = "NetworkError when attempting to fetch resource"
"""Firefox's message for a failed fetch, also for one that leaving a page cuts off. Chromium has separate messages."""
OF_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""Rules of axe-core whose result depends on the colour scheme."""
OF_SIZE = {"type": "rule", "values": ["scrollable-region-focusable"]}
"""Rule of axe-core whose result depends on the width of the screen and on the length of words."""
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]


def chromium(playwright: Playwright) -> Browser:
    """Start Debian's Chromium, or explain how to install it. Its headless shell draws no window and takes half the
    processor time."""
    executable = _executable("chromium-headless-shell", "chromium")
    return playwright.chromium.launch(executable_path=executable, headless=True, args=_FLAGS)


def firefox(playwright: Playwright, folder: Path) -> Browser:
    """Start Debian's Firefox through `firefox.py`, with a launcher script that is written to `folder`."""
    program, between = folder / "firefox", Path(__file__).with_name("firefox.py")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {between} {_executable("firefox-esr")} "$@"\n')
    program.chmod(0o755)
    return playwright.firefox.launch(channel="moz-firefox", executable_path=program, headless=True)


def _executable(*names: str) -> str:
    """Return the path of the first program that is installed."""
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, f"These tests need a browser: apt-get install --no-install-recommends {names[0]}"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A gateway, its admin's key, and calls to its API. `settings` are for starting workers next to it."""

    url: str
    key: str
    settings: Settings
    gateway: processes.Child
    api: httpx.Client

    def upload(self, name: str = "people", **shape: int) -> str:
        answer = self.api.post(
            "/v1/datasets",
            data={"name": name, "classes": classes_of(shape.get("classes", 2))},
            files={"file": ("people.npz", npz(**shape))},
        )
        return str(answer.raise_for_status().json()["id"])

    def model(self, dataset_id: str, **asked: Any) -> str:
        body = {"name": "churn", "dataset_id": dataset_id, "l2": 0.05} | asked
        return str(self.api.post("/v1/models", json=body).raise_for_status().json()["id"])

    def live_model(self) -> str:
        """Create a model, wait until a worker has trained it, and return its id."""
        made = self.model(self.upload())
        self.until(f"/v1/models/{made}", lambda model: model["live_version"])
        return made

    def forget(self, subject_id: str, **asked: Any) -> str:
        answer = self.api.post("/v1/deletion-requests", json={"subject_id": subject_id} | asked)
        return str(answer.raise_for_status().json()["id"])

    def until(self, path: str, so: Callable[[Any], Any]) -> Any:
        """Poll until the condition holds."""
        return processes.wait_until(lambda: so(self.api.get(path).raise_for_status().json()))


@contextmanager
def served(settings: Settings) -> Iterator[Site]:
    key = settings.resolved_admin_key_file().read_text().strip()
    with (
        processes.gateway(settings) as (child, url),
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=240) as api,
    ):
        yield Site(url=url, key=key, settings=settings, gateway=child, api=api)


_TOO_WIDE = """[...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > innerWidth)
    .slice(0, 5).map(one => one.outerHTML.slice(0, 120))"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A person at a browser. `complaints` are the browser's errors and warnings about our pages; a fetch that leaving a
    page cuts off, by a link or a form, is an error only in Firefox and not counted."""

    page: Page
    site: Site
    complaints: list[str] = field(default_factory=list)

    @property
    def _is_firefox(self) -> bool:
        browser = self.page.context.browser
        return browser is not None and browser.browser_type.name == "firefox"

    def opens(self, path: str) -> None:
        self.page.goto(self.site.url + path)

    def goes_to(self, title: str) -> None:
        """Open the page that the menu calls `title`, expanding its group first if necessary, and wait for the page's
        scripts."""
        menu = self.page.get_by_role("navigation", name="Main")
        text = f'a:text-is("{title}")'
        link = menu.locator(text)
        if not link.is_visible():
            menu.locator("details", has=self.page.locator(text)).locator("summary").click()
        # Until the scripts have run, a form submits as it would without them.
        with self.page.expect_navigation():
            link.click()

    def logs_in(self, key: str | None = None) -> None:
        self.opens("/admin/login")
        self.page.get_by_label("API key").fill(key or self.site.key)
        self.page.get_by_role("button", name="Log in").click()

    def faults(self) -> list[str]:
        """Return the faults that axe-core finds on the current page: by all rules in the light theme, by the colour
        rules in the dark theme. Empty in Firefox, because axe-core crashes it."""
        if self._is_firefox:
            return []
        found = self.violations({"type": "tag", "values": _RULES})
        self.page.emulate_media(color_scheme="dark")
        found += [f"dark: {fault}" for fault in self.violations(OF_COLOURS)]
        self.page.emulate_media(color_scheme="light")
        return found

    def violations(self, rules: Mapping[str, object]) -> list[str]:
        """Return the rule and the location of each violation of these rules that axe-core finds."""
        if not self.page.evaluate("typeof axe === 'object'"):
            # Through the debugger, because the content policy of the pages admits no foreign script.
            self.page.evaluate(AXE.read_text())
        # Without resultTypes axe-core describes every node that passes, too.
        options = {"runOnly": rules, "resultTypes": ["violations"]}
        result = self.page.evaluate(
            "options => axe.run(document, options).then(({ violations }) => violations)", options
        )
        return [f"{one['id']}: {node['target']}" for one in result for node in one["nodes"]]

    def overflows(self) -> list[str]:
        """Return the screen sizes at which the page overflows, with the overflowing elements."""
        found = []
        for name, width in SIZES.items():
            self.page.set_viewport_size({"width": width, "height": 900})
            found += [f"{name}: {elements}" for elements in self.overflow()]
        self.page.set_viewport_size({"width": SIZES["laptop"], "height": 900})
        return found

    def overflow(self) -> list[str]:
        """Return a description of the elements that extend beyond the current screen, or an empty list if the page
        fits."""
        is_too_wide = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        return [str(self.page.evaluate(_TOO_WIDE))] if is_too_wide else []

    def shows(self, name: str | None = None, *, at: str = "body") -> None:
        """Check that the page has no faults at any screen size. If `name` is given, save a screenshot from `at` on
        under that name."""
        faults = self.at_rest(self.faults)
        assert not faults, faults
        overflows = self.at_rest(self.overflows)
        assert not overflows, overflows
        assert [said for said in self.complaints if not (self._is_firefox and _CUT_OFF in said)] == []
        if name:
            self.is_pictured(name, at=at)

    def at_rest(self, examine: Callable[[], list[str]]) -> list[str]:
        """Return the result of `examine`, repeated while a navigation is in progress."""
        while True:
            self.page.wait_for_load_state()
            try:
                return examine()
            except Error as error:
                if "navigation" not in error.message:
                    raise

    def is_pictured(self, name: str, *, at: str = "body", width: int = 1160, height: int = 540) -> None:
        """Save a screenshot from `at` on as the tour's picture `name`, but only in Chromium with LETHE_TOUR=1."""
        if os.environ.get("LETHE_TOUR") and not self._is_firefox:
            TOUR.mkdir(exist_ok=True)
            self.page.evaluate("document.activeElement?.blur()")
            self.page.set_viewport_size({"width": width, "height": height})
            self.page.locator(at).first.evaluate("part => part.scrollIntoView()")
            self.page.screenshot(path=TOUR / f"{name}.png")
            self.page.set_viewport_size({"width": SIZES["laptop"], "height": 900})
            assert (TOUR / f"{name}.png").stat().st_size < 150_000


# A slow machine must not fail a test.
expect.set_options(timeout=60_000)


def visitor(browser: Browser, site: Site, *, clock: str = "UTC") -> Visitor:
    """Return a new visitor whose browser is in the given time zone and whose console warnings and errors are
    collected."""
    window = {"width": SIZES["laptop"], "height": 900}
    context = browser.new_context(viewport=window, locale="en-GB", timezone_id=clock)
    somebody = Visitor(page=context.new_page(), site=site)
    somebody.page.set_default_timeout(60_000)
    somebody.page.on(
        "console", lambda said: somebody.complaints.append(said.text) if said.type in ("error", "warning") else None
    )
    somebody.page.on("pageerror", lambda error: somebody.complaints.append(str(error)))
    return somebody
