"""Claims of docs/evidence/scaling.md."""

import statistics

import pytest

from benchmarks import page, scaling

PAGE = (page.EVIDENCE / "scaling.md").read_text()
RESULTS = page.read("scaling")


@pytest.mark.parametrize("name", scaling.tables(RESULTS))
def test_page_tables_match_the_stored_results(name):
    """Each table on the page is generated from the stored results."""
    assert scaling.tables(RESULTS)[name] in PAGE


@pytest.mark.soak
def test_stored_plans_match_the_planner():
    """The planner reproduces the stored steps and epsilons."""
    today = {"plans": scaling.plans(), "requests": scaling.requests()}
    assert scaling.tables(RESULTS | today) == scaling.tables(RESULTS)


def test_passes_per_request_fall_as_the_rows_grow():
    """Above ten thousand rows, the number of passes per request falls as the number of rows grows. With a million rows
    or more, a request takes less than one pass."""
    settled = [max(row["passes"]) for row in RESULTS["requests"] if row["rows"] >= 10**4]
    assert settled == sorted(settled, reverse=True)
    assert all(
        most < 1 for row, most in zip(RESULTS["requests"][3:], settled[2:], strict=False) if row["rows"] >= 10**6
    )


def test_steps_for_each_request_settle():
    """Up to a million rows, the cost of a request stops growing within the first hundred requests. With more rows, a
    request takes less than a tenth of a pass."""
    for row in RESULTS["requests"]:
        if row["rows"] > 10**6:
            assert max(row["passes"]) < 0.1
            continue
        assert max(row["passes"][-10:]) <= 1.05 * max(row["passes"][:-10])


def test_request_times_do_not_grow_with_the_rows():
    """Every request takes less than a second with a million rows and less than two seconds with ten million. With ten
    million rows, the median time is less than twice that with a million, and a refit takes more than twenty times as
    much processor time as the median request."""
    found = {row["rows"]: row for row in RESULTS["measured"]}
    million, ten = found[10**6], found[10**7]
    assert max(million["seconds"]) < 1
    assert max(ten["seconds"]) < 2
    assert statistics.median(ten["seconds"]) < 2 * statistics.median(million["seconds"])
    assert ten["refit_processor_seconds"] > 20 * statistics.median(ten["processor_seconds"])


@pytest.mark.soak
def test_the_measurements_run(monkeypatch: pytest.MonkeyPatch):
    """The benchmark measures both the service's deletion requests and a refit of the same rows."""
    monkeypatch.setattr(scaling, "PEOPLE", 2)
    found = scaling.measured(500, seed=0)
    assert len(found["steps"]) == len(found["seconds"]) == 2
    assert min(found["processor_seconds"]) > 0
    assert found["refit_processor_seconds"] > 0
    assert found["memory_bytes"] > 0
