"""An officer examines why people leave."""

import re
from collections import Counter
from pathlib import Path

from playwright.sync_api import expect
from scipy import stats

from lethe import Client
from lethe.features.leaving.randomised import REASONS, LeavingReason, randomise
from tests.features.desk.browser.browsing import Site, Visitor

DOCUMENT = Path(__file__).parents[4] / "docs" / "leaving-reasons.md"


def test_reasons_are_shown_with_error_bars(officer: Visitor, site: Site) -> None:
    """An officer first sees an empty state. After devices have sent randomised answers, the page shows each reason's
    share with error bars."""
    page = officer.page
    page.get_by_role("link", name="Leaving reasons").click()
    expect(page.get_by_text("No answers yet")).to_be_visible()
    officer.shows()
    with Client(site.url, site.key) as client:
        for reason in ["cost"] * 40 + ["privacy"] * 15 + ["other"] * 5:
            drawn = randomise(reason, odds=20)
            client.leaving_reasons.submit(answer=drawn.answer, odds=drawn.odds)
        client.leaving_reasons.submit(answer=LeavingReason.SWITCHED, odds=3)
    page.get_by_role("link", name="4 weeks").click()
    expect(page.get_by_role("heading", name="60 answers")).to_be_visible()
    expect(page.get_by_role("heading", name="1 answer", exact=False).first).to_be_visible()
    expect(page.get_by_role("row", name="Cost").last).to_contain_text("%")
    officer.shows("leaving-reasons")


def test_the_documented_javascript_randomises_like_the_sdk(anybody: Visitor) -> None:
    """The JavaScript function in docs/leaving-reasons.md sends each answer with the same frequency as the SDK. A
    correct function fails this test once in a billion runs."""
    [function] = re.findall(r"```js\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    anybody.opens("/admin/login")
    sent = anybody.page.evaluate(
        f"""() => {{
            {function}
            return Array.from({{length: 20000}}, () => randomise("cost", 4));
        }}"""
    )
    assert {one["odds"] for one in sent} == {4}
    counted = Counter(one["answer"] for one in sent)
    expected = [20_000 * (4 if reason == "cost" else 1) / 8 for reason in REASONS]
    assert counted.keys() == set(REASONS)
    assert stats.chisquare([counted[reason] for reason in REASONS], expected).pvalue > 1e-9
