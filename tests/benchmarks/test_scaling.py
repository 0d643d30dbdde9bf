"""What docs/evidence/scaling.md claims."""

import itertools

import pytest

from benchmarks import page, scaling

PAGE = (page.EVIDENCE / "scaling.md").read_text()
RESULTS = page.read("scaling")


@pytest.mark.parametrize("name", scaling.tables(RESULTS))
def test_the_page_holds_the_tables_of_the_results(name):
    """Each table of the page is the one that the stored results make."""
    assert scaling.tables(RESULTS)[name] in PAGE


def test_what_is_planned_is_what_the_planner_says_today():
    """Steps and epsilon come out as they are stored."""
    today = {
        "steps_by_records": scaling.steps_by_records(),
        "epsilon": scaling.epsilon_by_rows(),
        "requests": scaling.steps_by_requests(),
    }
    assert scaling.tables(RESULTS | today) == scaling.tables(RESULTS)


def test_steps_hardly_depend_on_rows():
    """From ten thousand rows on a deletion takes as many steps, within 2 %, and learning a few percent more."""
    large = [row for row in RESULTS["steps_by_records"] if row["rows"] >= 10**4]
    for most in scaling.RECORDS:
        counts = [row["steps"][str(most)] for row in large]
        assert max(counts) <= 1.02 * min(counts)
    learning = [row["learn_steps"] for row in large]
    assert all(before < after < 1.11 * before for before, after in itertools.pairwise(learning))


def test_steps_grow_with_the_logarithm_of_records():
    """Ten times as many records at once add the same number of steps each time."""
    for row in RESULTS["steps_by_records"]:
        counts = list(row["steps"].values())[1:]
        added = [after - before for before, after in itertools.pairwise(counts)]
        assert max(added, default=0) - min(added, default=0) <= 2


def test_epsilon_falls_with_rows():
    """At the same noise, ten times as many rows have a tenth of the epsilon or less."""
    for steps in ("0", "1", "100", "1000"):
        epsilons = [row["epsilon"][steps] for row in RESULTS["epsilon"]]
        assert all(after < before / 9 for before, after in itertools.pairwise(epsilons))


def test_steps_for_each_request_settle():
    """The second request takes as many steps as the hundredth."""
    for row in RESULTS["requests"]:
        assert row["steps"][0] < row["steps"][1] == pytest.approx(row["steps"][-1], abs=1)


def test_a_day_serves_fewer_the_more_rows_and_more_the_larger_the_batch():
    """Capacity falls with rows, and rises with the target and with the batch."""
    found = {(row["rows"], row["epsilon"], row["batch"]): row["requests_per_day"] for row in RESULTS["capacity"]}
    for (rows, epsilon, batch), days in found.items():
        assert found.get((10 * rows, epsilon, batch), 0) <= days
        assert found.get((rows, epsilon, 10 * batch), days) >= days
        assert found.get((rows, 2.0, batch), days) >= days


@pytest.mark.slow
def test_the_measurements_run(monkeypatch: pytest.MonkeyPatch):
    """A step and a run are measured, and make a capacity."""
    monkeypatch.setattr(scaling, "PEOPLE", 2)
    seconds, run = scaling.step_seconds(1000, seed=0), scaling.run_seconds(500, seed=0)
    assert 0 < seconds["fastest"] <= seconds["median"]
    assert run["steps"] < 10
    assert {row["measured"] for row in scaling.capacity([seconds], [run, run | {"rows": 1000}])} == {True, False}
