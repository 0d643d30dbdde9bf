"""Claims of docs/evidence/canaries.md."""

import pytest

from benchmarks import page
from benchmarks.canaries import costing, finding
from benchmarks.canaries.plans import BATCHES, DEFAULT, IN_BATCHES, LANES, SHAPES, planned
from benchmarks.canaries.tables import RUNS, tables
from lethe.proof import calibration
from lethe.proof.mechanism import Mechanism
from tests.tables import each
from tests.worker.evidence.faults import SCHEDULES

PAGE = (page.EVIDENCE / "canaries.md").read_text()
RESULTS = page.read("canaries")
FOUND = {(row["run"], row["fault"], row["lanes"]): row["any"] for row in RESULTS["found"]}


@each("name", tables(RESULTS))
def test_page_tables_match_the_stored_results(name):
    """Each table on the page is generated from the stored results."""
    assert tables(RESULTS)[name] in PAGE


def test_stored_plans_match_the_service():
    """The stored mechanisms and plans equal those of the service, both with its default batches and with full-batch
    steps."""
    default = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=0.1), num_slots=32_561, num_classes=2
    )
    assert BATCHES["Adult"] == {"batch_size": default.batch_size, "cool_down": default.cool_down}
    for said, batches in zip(RESULTS["settings"], ({}, BATCHES["Adult"]), strict=True):
        mechanism, plans = planned(*SHAPES["Adult"], **batches)
        assert Mechanism.from_json(said["mechanism"]) == mechanism
        for name, plan in plans.items():
            stored = said["plans"][name]
            assert (stored["steps_before"], stored["steps"]) == (plan.steps_before, plan.steps)
            assert f"{plan.steps:,}" in PAGE


def test_default_canary_tests_find_gross_faults():
    """With 256 canary lanes, each gross fault is found by more than nine in ten canary tests. With 4,096 canary lanes,
    small faults are found as well. Correct runs never fail."""
    gross = ("does nothing", "no noise", "noise x 0.7", "noise reused at every step", "half the steps")
    for run in ("forgetting", "forgetting" + IN_BATCHES):
        for fault in (*gross, "canary not removed"):
            assert FOUND[run, fault, DEFAULT] > 0.9
        for fault in finding.changed(run):
            assert FOUND[run, fault, LANES[-1]] > 0.9 or fault == "none"
    assert not any(share for (_, fault, _), share in FOUND.items() if fault == "none")
    assert all(row["alarms"] < 2 * row["allowed"] for row in RESULTS["alarms"])


def test_few_lanes_find_a_wrong_order():
    """With 64 canary lanes, the schedule test alone finds every fault in the order of batches, except two swapped steps
    in the middle of a long training run."""
    for (run, fault, lanes), share in FOUND.items():
        if fault in SCHEDULES:
            is_forgotten = run.startswith("learning") and fault == "two steps change places"
            assert share == (0 if is_forgotten else 1), (run, fault, lanes)
    for row in RESULTS["found"]:
        if (row["run"], row["fault"]) == ("forgetting" + IN_BATCHES, "order reversed"):
            assert (row["noise"], row["forgetting"], row["guarantee"], row["schedule"]) == (0, 0, 0, 1)


def test_faults_in_the_code_are_found():
    """More than 90 % of tests find a fault planted in the chain's code, and no test reports a fault in a correct
    chain."""
    for row in RESULTS["in_the_chain"]:
        shares = [row[run] for run in RUNS if run in row]
        assert all(share == 0 if row["fault"] == "none" else share > 0.9 for share in shares)


@pytest.mark.slow
def test_bounds_are_tight_and_valid():
    """With 256 canary lanes, the median lower bound is at least 0.6 of the certified bound, and with 4,096 at least
    0.89. If steps read batches, the median is at most a seventh lower. A bound is wrong with a probability of at most
    one in three million. Recomputing the stored values from the exact distribution reproduces them."""
    today = [
        *finding.proved(*planned(*SHAPES["Adult"])),
        *finding.proved(*planned(*SHAPES["Adult"], **BATCHES["Adult"])),
    ]
    for row, again in zip(RESULTS["proved"], today, strict=True):
        assert (row["run"], row["lanes"]) == (again["run"], again["lanes"])
        for name in ("median", "low", "high", "wrong"):
            assert row[name] == pytest.approx(again[name], rel=1e-4, abs=1e-14)
        assert row["wrong"] <= 1e-6 / 3
        assert row["high"] < 1
        least = {DEFAULT: 0.6, 4096: 0.89, 16384: 0.94}.get(row["lanes"], 0)
        assert row["median"] > (0.86 * least if IN_BATCHES in row["run"] else least)


def test_a_canary_test_is_cheap():
    """For tables as large as Adult and MNIST and full-batch steps, the canary test takes less than a fifth of the time
    of the chain alone. For a thousand rows it takes less than a tenth of the run."""
    small, *large, _ = RESULTS["chain"]
    assert all(row["audit_seconds"][str(DEFAULT)] < 0.2 * row["seconds"] for row in large)
    assert small["audit_seconds"][str(DEFAULT)] < 0.1 * RESULTS["run"]["without"]
    assert RESULTS["run"]["audited"] < 1.1 * RESULTS["run"]["without"]


@pytest.mark.slow
def test_canary_tests_match_the_results():
    """A few new canary tests, simulated from the distribution or run on the chain, find the faults that the page
    states."""
    mechanism, plans = planned(*SHAPES["small"])
    for fault in ("none", "does nothing", "no noise"):
        for observed in finding.observe(mechanism, plans["forgetting"], 5, finding.CHANGED[fault]):
            assert bool(observed.findings(mechanism)) == (fault != "none")
    asked = costing.asked_for("small")
    assert (asked["steps"], asked["lanes"]) == (1821, 4096)
