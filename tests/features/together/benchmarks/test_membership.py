"""Claims of docs/evidence/membership.md, compared with its JSON and with real runs."""

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.membership import __main__ as membership, figures, problems, tables
from benchmarks.membership.laws import Method

PAGE = Path("docs/evidence/membership.md")
SIZE = membership.Size(digits=(512, 12), others=(0, 0), repeats=2, l2=0.02)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Return the results of a run on the digits alone, with strong regularisation."""
    return membership.run([problems.digits(seed=0, l2=SIZE.l2)], SIZE, seed=0)


@pytest.fixture
def group(results: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = results["problems"][0]["requests"]["group"]
    return found


@pytest.mark.soak
@pytest.mark.parametrize("method", ["nothing", "fine-tuning"])
def test_without_noise_a_group_is_found(group: dict[str, Any], method: str) -> None:
    """Unchanged models and models fine-tuned without noise reveal a group: the attack on them proves a larger mu than
    is certified for Lethe's models."""
    assert group["attack"][method]["mu_at_least"] > group["attack"]["unlearning"]["certified_mu"]


@pytest.mark.soak
def test_unlearned_models_keep_their_certificate(results: dict[str, Any]) -> None:
    """No attack on unlearned models proves more than their certificate permits, at a family-wise error rate of 5 %."""
    for request in results["problems"][0]["requests"].values():
        attack = request["attack"]["unlearning"]
        assert attack["mu_at_least"] <= attack["certified_mu"]


@pytest.mark.soak
def test_epsilon_hat_is_biased_and_the_bound_is_not(results: dict[str, Any]) -> None:
    """For two samples of models from one distribution, epsilon-hat is well above 0. For unlearned models it is hardly
    different, and the proved bound does not exceed the certified epsilon. For unchanged and fine-tuned models,
    epsilon-hat is larger and the proved bound is above 0."""
    same, unlearned = (results["competition"][entry] for entry in ("retrained", "unlearning"))
    assert 0.6 < same["one_threshold"]["mean"] < same["epsilon_hat"]["mean"]
    assert abs(unlearned["epsilon_hat"]["mean"] - same["epsilon_hat"]["mean"]) < 1
    assert unlearned["epsilon_at_least"]["greatest"] <= unlearned["certified_epsilon"]
    for entry in ("nothing", "fine-tuning"):
        assert results["competition"][entry]["epsilon_hat"]["mean"] > same["epsilon_hat"]["mean"]
        assert results["competition"][entry]["epsilon_at_least"]["greatest"] > 0


@pytest.mark.soak
def test_the_loss_on_forgotten_rows_matches_retraining(group: dict[str, Any]) -> None:
    """Unlearning raises the loss on forgotten rows to that of models that never saw them. On retained and test rows,
    unlearned and retrained models are equally accurate."""
    forgotten = group["remembered"]["forgotten"]
    before, unlearned, retrained = (forgotten[stage] for stage in ("before", "unlearned", "retrained"))
    error = math.hypot(unlearned["loss_std"], retrained["loss_std"]) / math.sqrt(group["models"])
    assert before["loss"] < retrained["loss"] - 10 * error
    assert abs(unlearned["loss"] - retrained["loss"]) < 7 * error
    for rows, apart in (("retained", 0.01), ("test", 0.02)):
        stages = group["remembered"][rows]
        assert abs(stages["unlearned"]["accuracy"] - stages["retrained"]["accuracy"]) < apart


@pytest.mark.soak
def test_figures_are_drawn(results: dict[str, Any], tmp_path: Path) -> None:
    """Every figure of the page can be drawn from the results of another run, and the page shows all of them."""
    figures.draw(results, tmp_path)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == sorted(path.name for path in page.EVIDENCE.glob("membership*.svg"))
    assert drawn == ["membership-epsilon-hat.svg", "membership-roc.svg", "membership.svg"]
    assert all(f"({name})" in PAGE.read_text() for name in drawn)


def test_the_page_states_what_was_proved() -> None:
    """In the full run, the lower bound on mu that group attacks prove for unchanged and fine-tuned models exceeds the
    certified mu. For unlearned models, the lower bound is 0 for every attack."""
    problems_of_page = page.read("membership")["problems"]
    assert {problem["name"] for problem in problems_of_page} == {"digits 3/8", "Adult", "MNIST 3/8"}
    for problem in problems_of_page:
        for name, request in problem["requests"].items():
            nothing, fine_tuning, unlearning = (request["attack"][method] for method in Method)
            assert unlearning["mu_at_least"] == 0
            if name == "group":
                assert nothing["mu_at_least"] > unlearning["certified_mu"]
                assert fine_tuning["mu_at_least"] > unlearning["certified_mu"]


def test_no_estimate_is_above_its_certificate() -> None:
    """After unlearning, every separation estimated by the attack is below the certified mu. The page names the largest
    estimate."""
    estimates = {}
    for problem in page.read("membership")["problems"]:
        for name, request in problem["requests"].items():
            attack = request["attack"]["unlearning"]
            assert attack["separation"] < attack["certified_mu"]
            estimates[problem["name"], name] = attack["separation"]
    assert max(estimates, key=lambda request: estimates[request]) == ("Adult", "group")
    assert "The largest is that of Adult's group: 0.32, where 0.39 is certified." in " ".join(PAGE.read_text().split())


@pytest.mark.parametrize("table", tables.ALL, ids=lambda table: table.__name__)
def test_page_tables_match_the_full_run(table: Any) -> None:
    """Every table on the page is generated from the JSON output of the full run."""
    assert table(page.read("membership")) in PAGE.read_text()
