"""Claims of docs/evidence/rivals.md, compared with its JSON, and a short run of the experiment."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.rivals import __main__ as rivals, figures, problems, tables

PAGE = Path("docs/evidence/rivals.md")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Return the results of the full run, which the page quotes."""
    return page.read("rivals")


def of(problem: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["rival"]: row for row in problem["rivals"]}


def test_page_tables_match_the_full_run(results: dict[str, Any]) -> None:
    """Every table on the page is generated from the JSON output of the full run."""
    text = PAGE.read_text()
    assert tables.promises(results) in text
    assert tables.against_refits(results) in text
    assert tables.audits(results) in text
    assert tables.margins(results) in text
    assert all(tables.costs(problem) in text for problem in results["problems"])


@pytest.mark.slow
def test_figures_are_drawn(results: dict[str, Any], tmp_path: Path) -> None:
    """Both figures can be drawn, and the page shows them."""
    figures.draw(results, tmp_path)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == ["rivals-audit.svg", "rivals-seconds.svg"]
    assert all(f"({name})" in PAGE.read_text() for name in drawn)


def test_no_audit_refutes_a_certificate(results: dict[str, Any]) -> None:
    """The epsilon that the audit proves never exceeds the certified epsilon, either for the last version or for both
    versions together."""
    for row in results["audit"]["rivals"]:
        for question, certified in (("after", "certified_epsilon"), ("both", "certified_adaptive_epsilon")):
            if row[certified] is not None:
                assert row[question]["epsilon"] <= row[certified]


def test_versions_without_a_joint_guarantee_reveal_the_record(results: dict[str, Any]) -> None:
    """Plain fits, SISA, certified removal and fine-tuning reveal the record to a reader of both versions. A warm start
    reveals it even to a reader of the last version alone."""
    audited = of(results["audit"])
    for name in ("retrain_lbfgs", "negative_gradient", "pseudo_label", "nothing_fit"):
        assert audited[name]["both"]["epsilon"] == "inf"
    for name in ("sisa", "certified_removal"):
        assert audited[name]["both"]["epsilon"] > 4
    for name in ("lbfgs_warm", "negative_gradient", "pseudo_label", "nothing_fit"):
        assert audited[name]["after"]["epsilon"] == "inf"


def test_lethe_takes_fewer_passes_than_a_refit(results: dict[str, Any]) -> None:
    """On the three large problems, Lethe takes less than a third as many passes as a refit, both at the same l2 and at
    scikit-learn's default. On at least two of them, it also takes less time. The warm start takes fewer passes."""
    large = [of(problem) for problem in results["problems"] if not problem["name"].startswith("digits")]
    assert len(large) == 3
    for row in large:
        assert row["langevin_shipped"]["passes"] * 3 < row["lbfgs_shipped_l2"]["passes"] < row["lbfgs_c1"]["passes"]
        assert row["warm_shipped_l2"]["passes"] < row["langevin_shipped"]["passes"]
    quicker = [row["langevin_shipped"]["seconds"] < row["lbfgs_shipped_l2"]["seconds"] for row in large]
    assert sum(quicker) >= 2


def test_unlearned_models_match_their_oracles(results: dict[str, Any]) -> None:
    """Measured by KLoM, unlearned models are as close to their oracles as other oracles are. Models that were not
    unlearned are further away, and U-LiRA proves that they differ."""
    row = of(results["margins"])
    for rows in ("forgotten", "kept", "test"):
        assert row["langevin_ours"][rows] < 1.5 * row["retrain_chain"][rows] < row["nothing_chain"][rows]
    assert row["langevin_ours"]["mu"] == 0 < row["nothing_chain"]["mu"]


def test_rivals_win_only_where_stated(results: dict[str, Any]) -> None:
    """Certified removal is faster than Lethe only on the digits, and no noisy chain is more accurate than the best
    plain refit."""
    for problem in results["problems"]:
        row = of(problem)
        quicker = row["certified_removal"]["seconds"] < row["langevin_ours"]["seconds"]
        assert quicker == problem["name"].startswith("digits")
        assert row["lbfgs_c1"]["accuracy"] >= max(r["accuracy"] for name, r in row.items() if "langevin" in name)


def test_lethe_takes_fewer_passes_than_the_noisy_rivals(results: dict[str, Any]) -> None:
    """At equal noise, Lethe takes fewer passes than retraining, noisy SGD, full-batch steps, and Descent-to-Delete with
    or without a secret state."""
    for problem in results["problems"]:
        row = of(problem)
        assert row["langevin_ours"]["passes"] < row["noisy_sgd"]["passes"] < row["d2d"]["passes"]
        assert row["langevin_ours"]["passes"] < row["d2d_secret"]["passes"] < row["d2d"]["passes"]
        assert row["langevin_ours"]["passes"] < row["langevin_all_rows"]["passes"]
        assert row["langevin_quiet"]["passes"] < row["d2d"]["passes"]
        assert row["langevin_ours"]["passes"] < row["retrain_chain"]["passes"]
        assert problem["papers"]["steps_at_our_noise"][1] > problem["ours"]["learn_steps"]


@pytest.mark.soak
def test_the_harness_measures_every_rival() -> None:
    """On the digits, every rival serves every request, and every rival with a certificate meets the target unless it
    ignores requests."""
    problem = replace(problems.digits(seed=0, kept=(3, 8), requests=2), repeats=1)
    found = rivals.measured_problem(problem, 10.0)
    assert {row["requests"] for row in found["rivals"]} == {2}
    for row in found["rivals"]:
        assert row["epsilon"] is None or row["epsilon"] <= 1 or row["rival"] == "nothing_chain"
