"""The calculator's pages: every theorem has a form and a value."""

import urllib.parse
from collections.abc import Callable

from lethe.features.theorems import CALCULATOR, evaluate
from tests.features.desk.browsing import Browser
from tests.tables import each

SomebodyWith = Callable[..., Browser]


def test_theorems_are_found_by_search(officer: Browser) -> None:
    """All theorems are listed, search words narrow the list, and a search without a match shows an empty state."""
    page = officer.get("/admin/calculator").text
    assert all(f'"/admin/calculator/{name}"' in page for name in CALCULATOR)
    page = officer.get("/admin/calculator?sought=descent+secret").text
    assert '"/admin/calculator/n2_d2d"' in page
    assert '"/admin/calculator/gdp_eps"' not in page
    assert "No theorem matches" in officer.get("/admin/calculator?sought=zebra").text


def test_every_theorem_has_a_form(officer: Browser) -> None:
    """Each theorem's page has a field for every number and a checkbox for every hypothesis, and states the
    assumptions."""
    for name, bound in CALCULATOR.items():
        page = officer.get(f"/admin/calculator/{name}")
        assert page.status_code == 200, name
        assert all(f'name="{parameter.name}"' in page.text for parameter in bound.parameters), name
        assert "Fill in its numbers" in page.text


def asked(name: str, **params: object) -> str:
    return f"/admin/calculator/{name}?{urllib.parse.urlencode(params)}"


def test_the_page_shows_the_value(officer: Browser) -> None:
    """Submitting the form leads to a page that shows the theorem's value. The form keeps its input."""
    page = officer.get(asked("gdp_eps", mu=0.3, delta="1e-5")).text
    assert f"{evaluate('gdp_eps', {'mu': 0.3, 'delta': 1e-5})['eps']:.5f}" in page
    assert 'value="1e-5"' in page


@each(
    ("name", "params", "output"),
    [
        ("mu_compose", {"mus": "0.3, 0.4"}, "0.50000"),
        ("rdp_to_dp_mironov", {"alpha": "2", "rho": "inf", "delta": "1e-5"}, None),
        ("group_privacy_inverse", {"eps": "3", "delta": "0", "k": "3"}, "1.00000"),
        ("shift_mu", {"z0": "1", "segments": "10:0.5 20:0", "c": "0.9", "eta": "1", "sigma": "1"}, "0."),
    ],
)
def test_lists_and_pairs_are_parsed(officer: Browser, name: str, params: dict[str, str], output: str | None) -> None:
    """List items are separated by commas, and the two parts of a pair by a colon. A value out of range is refused with
    a specific error, and the form keeps its input."""
    page = officer.get(asked(name, **params))
    assert page.status_code == (422 if output is None else 200), page.text
    if output is not None:
        assert f'<b class="number">{output}' in page.text
    assert all(f'value="{value}"' in page.text for value in params.values())


def test_a_denied_hypothesis_is_refused(officer: Browser) -> None:
    """An unticked checkbox denies its hypothesis, and the calculation is refused."""
    params = {"alpha": 2, "p_accept": 0.5}
    assert officer.get(asked("selection_penalty", **params, both_runs="on")).status_code == 200
    page = officer.get(asked("selection_penalty", **params))
    assert page.status_code == 422
    assert "not established" in page.text


def test_an_unknown_theorem_is_a_404(officer: Browser) -> None:
    """The page of an unknown theorem returns 404."""
    assert officer.get("/admin/calculator/nothing").status_code == 404
