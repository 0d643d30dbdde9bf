"""Canary tests on pages: their results next to the certified bounds."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from scipy import special

from app.db import Actor
from app.db.tables import Run
from app.features.desk.glossary import glossary
from app.features.desk.pages import evidence
from app.installations import Installation
from lethe.contract.runs import AuditOut, GuessesOut
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]


@pytest.fixture
def model(new_dataset: Make, new_model: Make, forget: Make, work: Work) -> str:
    """Return the id of a model that was trained and has forgotten a person, with a canary test of both runs."""
    made: str = new_model(new_dataset(rows=200)["id"], noise_scale=0.02)["id"]
    work()
    forget("p1")
    work()
    return made


def test_a_passed_canary_test_is_shown(officer: Browser, model: str, get: Get) -> None:
    """The overview, the list of models and the model's page show that the last canary test passed. The run's page shows
    its results."""
    found = get(f"/models/{model}")["audit"]
    numbers = evidence.between(AuditOut(**found["last"]))
    page = officer.get("/admin/overview").text
    assert re.search(r"<b>1</b>\s*<span>Canary tests passed</span>", page)
    assert ">Passed<" in page
    assert ">Passed<" in officer.get("/admin/models").text
    page = officer.get(f"/admin/models/{model}").text
    assert f'href="/admin/runs/{found["last_run_id"]}">{numbers}<' in page
    page = officer.get(f"/admin/runs/{found['last_run_id']}").text
    assert "The run passed." in page
    assert numbers in page
    assert f"gone in the {found['last']['steps']:,} of this run." in page
    learned = next(run for run in get("/runs")["items"] if run["kind"] == "learn")
    assert "They were there in all" in officer.get(f"/admin/runs/{learned['id']}").text


@each("finding", ["guarantee", "noise", "forgetting", "schedule"])
def test_a_refuted_run_is_explained(
    officer: Browser, model: str, get: Get, installation: Installation, by: Actor, finding: str
) -> None:
    """If a canary test refutes a run, the run's page and the overview explain this in words, and the model's page shows
    the test as refused."""
    run_id = get(f"/models/{model}")["audit"]["last_run_id"]
    with installation.database.writing(by=by) as session:
        run = session.get_one(Run, run_id)
        changed = {**(run.audit or {}), "findings": [finding]}
        session.execute(sa.update(Run).where(Run.id == run_id).values(audit=changed, error_code="audit_failed"))
    page = officer.get(f"/admin/runs/{run_id}").text
    assert "The canary test refuted the run." in page
    assert glossary("en").labels["refutations"][finding] in page
    assert "run nothing on that machine" in page
    page = officer.get("/admin/overview").text
    assert re.search(r"<b>1</b>\s*<span>Canary tests refused</span>", page)
    assert "refute a run" in page
    assert ">Refused<" in officer.get(f"/admin/models/{model}").text


def test_missing_measurements_of_old_runs_are_omitted(
    officer: Browser, model: str, get: Get, installation: Installation, by: Actor
) -> None:
    """An old run's page omits quantities that were not measured, and the API returns null for them."""
    run_id = get(f"/models/{model}")["audit"]["last_run_id"]
    assert ">Schedule</button>" in officer.get(f"/admin/runs/{run_id}").text
    with installation.database.writing(by=by) as session:
        run = session.get_one(Run, run_id)
        before = {name: value for name, value in (run.audit or {}).items() if name != "visits"}
        session.execute(sa.update(Run).where(Run.id == run_id).values(audit=before))
    page = officer.get(f"/admin/runs/{run_id}").text
    assert ">Forgetting</button>" in page
    assert "256 are to be expected" in page
    assert ">Schedule</button>" not in page
    assert get(f"/runs/{run_id}")["audit"]["visits"] is None


@pytest.mark.parametrize("freedom", [1, 32, 224, 4032])
def test_chi_squared_is_shown_in_standard_deviations(freedom: int) -> None:
    """A chi-squared value is shown as the number of standard deviations of an equally unlikely normal value, to within
    a tenth."""
    for deviations in (-1.0, 0.0, 1.0, 5.0):
        squares = float(special.chdtri(freedom, special.ndtr(-deviations)))
        assert evidence._deviation(squares, freedom) == pytest.approx(deviations, rel=0.1, abs=0.1)
    assert evidence._deviation(1e12, freedom) > 1000


def test_a_canary_test_can_be_requested(officer: Browser, model: str, get: Get, work: Work) -> None:
    """A canary test is requested with a button, and the page shows it as requested until it is done."""
    path = f"/admin/models/{model}"
    assert "Run a canary test" in officer.get(path).text
    answer = officer.post(f"{path}/audit")
    assert answer.status_code == 303
    page = officer.get(answer.headers["location"]).text
    assert "starts as soon as a worker is free" in page
    assert "Another test was requested" in page
    assert work() == 1
    assert "Another test was requested" not in officer.get(path).text
    assert "Canary test" in officer.get("/admin/runs").text
    assert get(f"/models/{model}")["live_version"] == 2


def test_models_without_canary_tests_do_not_offer_one(
    officer: Browser, somebody_with: Callable[..., Browser], new_dataset: Make, new_model: Make, work: Work
) -> None:
    """The page of a model created without canaries does not offer a canary test. A user without the required scope is
    not offered one on any page."""
    dataset = new_dataset()["id"]
    none, some = (new_model(dataset, audit={"lanes": lanes})["id"] for lanes in (0, 8))
    work()
    assert "Run a canary test" not in officer.get(f"/admin/models/{none}").text
    assert "Last canary test<" not in officer.get(f"/admin/models/{none}").text
    assert "Run a canary test" in officer.get(f"/admin/models/{some}").text
    reader = somebody_with(Scope.MODELS_READ)
    assert "Run a canary test" not in reader.get(f"/admin/models/{some}").text
    assert reader.post(f"/admin/models/{some}/audit").status_code == 403


def test_no_number_is_rounded_in_our_favour() -> None:
    """Measured lower bounds are rounded down, and certified upper bounds are rounded up."""
    guesses = GuessesOut(true_positives=1, members=1, false_positives=0, nonmembers=1)
    counted = {
        "lanes": 2,
        "steps_before": 9,
        "steps": 1,
        "records": 1,
        "squares": 2.0,
        "drift": 0.0,
        "visits": 1.0,
        "error": 1e-6 / 3,
    }
    bounds = {"mu": 0.1, "epsilon": 0.93301, "mu_lower_bound": 0.1, "epsilon_lower_bound": 0.61299, "findings": []}
    audit = AuditOut(guesses=guesses, notion="deletion", **counted, **bounds)
    assert evidence.between(audit) == "0.612 ≤ ε ≤ 0.934"
    refused = audit.model_copy(update={"epsilon_lower_bound": 1.05, "findings": ["guarantee"]})
    assert evidence.between(refused) == "ε ≤ 0.934"
    assert evidence.of_certified_run(audit) == (
        "A canary test attacked the run with 1 canary and 1 control. It proves that of a record at its worst "
        "at least ε = 0.612 is left, which of a run that is right is wrong once in 3,000,000 times at most; certified "
        "is ε ≤ 0.934 for any one."
    )
    learned = audit.model_copy(update={"notion": "release"})
    assert "of a record still in the data at least ε = 0.612 is left" in evidence.of_certified_run(learned)


def test_canary_tests_are_plotted_over_time(
    officer: Browser, model: str, get: Get, installation: Installation, by: Actor, new_model: Make
) -> None:
    """The measured and the certified epsilon of every run are plotted and also listed with the version. A refuted run
    is listed first."""
    path = f"/admin/models/{model}/canary-tests"
    assert f'hx-get="{path}"' in officer.get(f"/admin/models/{model}").text
    page = officer.get(path).text
    assert "None of 2 tests refutes its run." in page
    assert "&#34;ticks&#34;: [[1, &#34;v1&#34;], [2, &#34;v2&#34;]]" in page
    learned = next(run for run in get("/runs")["items"] if run["kind"] == "learn")
    with installation.database.writing(by=by) as session:
        changed = {**learned["audit"], "findings": ["noise"]}
        session.execute(sa.update(Run).where(Run.id == learned["id"]).values(audit=changed))
    page = officer.get(path).text
    assert page.index("was refuted") < page.index(">Refused<") < page.index(">Passed<")
    other = new_model(get(f"/models/{model}")["dataset_id"], name="untested", audit={"lanes": 0})
    assert "No run was tested" in officer.get(f"/admin/models/{other['id']}/canary-tests").text
