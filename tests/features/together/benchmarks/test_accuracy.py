"""Claims of docs/evidence/accuracy.md."""

import pytest

from benchmarks import accuracy, page

PAGE = (page.EVIDENCE / "accuracy.md").read_text()
RESULTS = page.read("accuracy")


@pytest.mark.parametrize("name", accuracy.printed(RESULTS))
def test_page_tables_match_the_stored_results(name: str) -> None:
    """Each table on the page is generated from the stored results."""
    assert accuracy.printed(RESULTS)[name] in PAGE


def test_stored_plans_match_the_planner() -> None:
    """With the current defaults, training and a request take the stored numbers of passes."""
    for row in RESULTS["tables"]:
        settings = {"num_slots": row["rows"], "num_classes": row["classes"]}
        mechanism = accuracy.made(**settings, epsilon=accuracy.EPSILONS[0])
        assert row["learn_passes"] == mechanism.learn_steps / mechanism.num_batches
        steps = accuracy.request_steps(mechanism, accuracy.EPSILONS[0])
        assert row["request_passes"] == steps / mechanism.num_batches


@pytest.mark.soak
def test_a_small_table_is_as_accurate_as_stated() -> None:
    """A newly trained model of one table has the accuracy stated on the page, to within six standard deviations plus
    two points."""
    name, problem = next(iter(accuracy.tables(None, quick=True)))
    right, _ = accuracy.learned(problem(0), accuracy.EPSILONS[0])
    [stored] = [row["accuracy"]["epsilon 1"] for row in RESULTS["tables"] if row["name"] == name]
    assert abs(right - stored[0]) < 6 * stored[1] + 0.02
