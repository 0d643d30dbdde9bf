"""What docs/evidence/scaling.md claims."""

import statistics

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
    today = {"plans": scaling.plans(), "requests": scaling.requests()}
    assert scaling.tables(RESULTS | today) == scaling.tables(RESULTS)


def test_requests_read_less_the_more_rows_there_are():
    """From ten thousand rows on a request costs fewer passes the more rows there are; from a million on, not one."""
    settled = [max(row["passes"]) for row in RESULTS["requests"] if row["rows"] >= 10**4]
    assert settled == sorted(settled, reverse=True)
    assert all(
        most < 1 for row, most in zip(RESULTS["requests"][3:], settled[2:], strict=False) if row["rows"] >= 10**6
    )


def test_steps_for_each_request_settle():
    """What a request costs does not grow with how many came before: of the last ten none is dearer than the tenth."""
    for row in RESULTS["requests"]:
        assert max(row["passes"][-10:]) <= 1.05 * max(row["passes"][:-10])


def test_a_request_is_cheaper_than_a_refit():
    """With a million rows and more a request takes a hundredth of the processor time of a refit, or less."""
    large = [row for row in RESULTS["measured"] if row["rows"] >= 10**6]
    assert large
    for row in large:
        assert row["refit_processor_seconds"] > 100 * statistics.median(row["processor_seconds"])


@pytest.mark.slow
def test_the_measurements_run(monkeypatch: pytest.MonkeyPatch):
    """Requests to the service are measured, and the refit of their rows."""
    monkeypatch.setattr(scaling, "PEOPLE", 2)
    found = scaling.measured(500, seed=0)
    assert len(found["steps"]) == len(found["seconds"]) == 2
    assert min(found["processor_seconds"]) > 0
    assert found["refit_processor_seconds"] > 0
    assert found["memory_bytes"] > 0
