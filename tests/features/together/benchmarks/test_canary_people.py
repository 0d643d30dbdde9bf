"""Claims of docs/evidence/canary-people.md."""

import pytest

from benchmarks import canary_people, page
from lethe.features.canary_people import judging

PAGE = (page.EVIDENCE / "canary-people.md").read_text()
RESULTS = page.read("canary_people")


def test_page_table_matches_the_stored_results() -> None:
    """The table on the page is generated from the stored results."""
    assert canary_people.printed(RESULTS) in PAGE


def test_pipelines_that_keep_forgotten_people_raise_an_alarm() -> None:
    """Each kind of pipeline that keeps forgotten people raises an alarm at level 1e-6 in 20 of 20 runs, with both
    models and both tables."""
    kept = [row for row in RESULTS["rows"] if row["kind"] != "honest"]
    assert len(kept) == 12
    for row in kept:
        assert row["runs"] == canary_people.CAUGHT_RUNS
        assert row["alarm"] == sum(p_value < judging.LEVEL for p_value in row["p_values"]) == 20


def test_honest_pipelines_raise_no_alarm() -> None:
    """In 200 runs of each model on the synthetic table, no honest pipeline raises an alarm and every outcome is
    "clean", so each test had enough power."""
    honest = [row for row in RESULTS["rows"] if row["kind"] == "honest"]
    assert sum(row["runs"] == canary_people.HONEST_RUNS for row in honest) == 2
    for row in honest:
        assert row["alarm"] == 0
        assert row["clean"] == row["runs"]
        assert row["accuracy"] == pytest.approx(row["accuracy_without"], abs=0.02)


@pytest.mark.slow
def test_a_run_matches_the_results() -> None:
    """A new run gives the outcomes that the page states."""
    found = canary_people.run(canary_people.invented(0), "XGBoost", 0, canary_people.KINDS)
    assert [verdict["outcome"] for verdict in found.values()] == ["clean", "alarm", "alarm", "alarm"]
