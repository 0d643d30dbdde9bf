"""What docs/evidence/audit.md claims."""

import pytest

from app.privacy.mechanism import Mechanism
from benchmarks import page
from benchmarks.audit import costing, finding
from benchmarks.audit.plans import DEFAULT, LANES, SHAPES, planned
from benchmarks.audit.tables import tables

PAGE = (page.EVIDENCE / "audit.md").read_text()
RESULTS = page.read("audit")
FOUND = {(row["run"], row["fault"], row["lanes"]): row["any"] for row in RESULTS["found"]}


@pytest.mark.parametrize("name", tables(RESULTS))
def test_the_page_holds_the_tables_of_the_results(name):
    """Each table of the page is the one that the stored results make."""
    assert tables(RESULTS)[name] in PAGE


def test_what_was_planned_is_planned_today():
    """Mechanism and plans are those that the service has by default."""
    mechanism, plans = planned(*SHAPES["Adult"])
    assert Mechanism.from_json(RESULTS["settings"]["mechanism"]) == mechanism
    for name, plan in plans.items():
        stored = RESULTS["settings"]["plans"][name]
        assert (stored["steps_before"], stored["steps"]) == (plan.steps_before, plan.steps)
        assert f"{plan.steps:,}" in PAGE


def test_gross_faults_are_found_by_the_lanes_that_runs_have():
    """With 256 lanes nine of ten audits or more find each gross fault; with 4,096 small ones too; right runs never
    fail."""
    gross = ("does nothing", "no noise", "noise x 0.7", "noise reused at every step", "half the steps")
    for fault in (*gross, "canary not removed"):
        assert FOUND["forgetting", fault, DEFAULT] > 0.9
    for fault in finding.CHANGED:
        assert FOUND["forgetting", fault, LANES[-1]] > 0.9 or fault == "none"
    assert not any(share for (_, fault, _), share in FOUND.items() if fault == "none")
    assert all(row["alarms"] < 2 * row["allowed"] for row in RESULTS["alarms"])


def test_faults_in_the_code_are_found():
    """What is planted in the chain itself is found as often as the law says, and nothing where nothing is."""
    for row in RESULTS["in_the_chain"]:
        shares = [row[run] for run in ("forgetting", "learning") if run in row]
        assert all(share == 0 if row["fault"] == "none" else share > 0.9 for share in shares)


def test_bounds_come_near_and_are_never_wrong():
    """The median bound is six tenths of what is certified with 256 lanes, nine with 4,096; one in three million at most
    is false. Both follow from the exact law, again today."""
    mechanism, plans = planned(*SHAPES["Adult"])
    for row, again in zip(RESULTS["proved"], finding.proved(mechanism, plans), strict=True):
        assert (row["run"], row["lanes"]) == (again["run"], again["lanes"])
        for name in ("median", "low", "high", "wrong"):
            assert row[name] == pytest.approx(again[name], rel=1e-6)
        assert row["wrong"] <= 1e-6 / 3
        assert row["high"] < 1
        assert row["median"] > {DEFAULT: 0.6, 4096: 0.89, 16384: 0.94}.get(row["lanes"], 0)


def test_an_audit_costs_less_than_a_tenth_of_a_run():
    """On rows as many as Adult's or MNIST's the audit takes less than a tenth of the chain alone, and on a thousand
    rows less than a tenth of the run."""
    small, *large = RESULTS["chain"]
    assert all(row["audit_seconds"][str(DEFAULT)] < 0.1 * row["seconds"] for row in large)
    assert small["audit_seconds"][str(DEFAULT)] < 0.1 * RESULTS["run"]["without"]
    assert RESULTS["run"]["audited"] < 1.1 * RESULTS["run"]["without"]


def test_audits_come_out_as_they_are_stored():
    """A few audits today, of the law and of the chain, find what the page says."""
    mechanism, plans = planned(*SHAPES["small"])
    for fault in ("none", "does nothing", "no noise"):
        for observed in finding.observe(mechanism, plans["forgetting"], 5, fault):
            assert bool(observed.findings(mechanism)) == (fault != "none")
    asked = costing.asked_for("small")
    assert (asked["steps"], asked["lanes"]) == (2688, 4096)
