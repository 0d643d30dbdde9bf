import math
from typing import Any

import pytest

from lethe.proof import accountant, certificate
from lethe.proof.accountant import Exposure, Run
from lethe.proof.canary_test import CanaryPlan, Guesses
from lethe.proof.errors import PreconditionError
from lethe.proof.guarantees import Evidence
from tests.lethe.proof.stated import HISTORY, MECHANISM, RELEASES, altered, audited, evidence, refusal, statement
from tests.tables import each

# --- true statements -------------------------------------------------------------------------------------------------


def test_a_true_statement_is_recomputed():
    """Checking a true statement returns the guarantees that follow from its evidence."""
    assert certificate.check(statement()) == evidence().guarantees()


def test_a_statement_after_retraining_is_confirmed():
    """A statement is confirmed even after retraining, and even for a person who was erased before the first step."""
    relearned = evidence(history=(Run(steps=50, records=3),), steps_present=0)
    assert certificate.check(statement(relearned, kind="relearn"))[0].mu == 0
    unseen = evidence(history=(Run(steps=50),), steps_present=0, exposures={})
    assert [g.mu for g in certificate.check(statement(unseen, kind="learn"))][:3] == [0, 0, 0]


def test_a_statement_with_a_compact_history_is_confirmed():
    """A compact history omits old runs but still accounts for the versions that they published."""
    history = [Run(steps=50), *[Run(steps=100, records=1)] * 60, Run(steps=9, records=3)]
    left_out, short = accountant.compact(MECHANISM, history)
    assert 50 < left_out < 6050
    exposure = Exposure(mechanism=MECHANISM, records=2, releases=((50, 1), (100, 60)), stretches=2)
    made = evidence(steps_before=left_out, history=tuple(short), steps_present=6050, exposures={"mdl_1": exposure})
    assert certificate.check(statement(made, audited=False)) == made.guarantees()
    of_all = evidence(history=tuple(history), steps_present=6050, exposures={"mdl_1": exposure})
    for less, all_of_it in zip(made.guarantees(), of_all.guarantees(), strict=True):
        assert less.mu == pytest.approx(all_of_it.mu, rel=1e-12)
    few = Exposure(mechanism=MECHANISM, records=2, releases=((50, 1), (100, 20)), stretches=2)
    lacking = evidence(steps_before=left_out, history=tuple(short), steps_present=6050, exposures={"mdl_1": few})
    with pytest.raises(PreconditionError, match="own_releases_counted"):
        statement(lacking, audited=False)


def test_rounding_differences_are_accepted():
    """A number that differs only in the tenth digit is accepted."""
    document = statement()
    for guarantee in document["guarantees"]:
        guarantee["mu"] *= 1 + 1e-11
        guarantee["epsilon"] *= 1 - 1e-11
    assert certificate.check(document) == evidence().guarantees()


# --- false statements ------------------------------------------------------------------------------------------------

NUMBERS_OF_GUARANTEES = [
    (f"guarantees/{index}/{name}", value)
    for index in range(4)
    for name, value in (
        ("mu", 0.0),
        ("mu", True),
        ("mu", math.nan),
        ("mu", math.inf),
        ("mu", -1),
        ("mu", "0.1"),
        ("epsilon", 0.0),
        ("epsilon", math.nan),
        ("epsilon", None),
        ("best_attacker_accuracy", 0.5),
        ("delta", 1e-9),
        ("notion", "anonymity"),
        ("adjacency", "none"),
        ("reference_process", "nothing"),
    )
]


@each(("path", "value"), NUMBERS_OF_GUARANTEES)
def test_every_number_of_every_guarantee_is_recomputed(path, value):
    """A guarantee with any altered number is refused, and the message names the field."""
    assert f"guarantees.{path.split('/')[2]}=" in refusal(altered(path, value))


def with_releases(*releases: tuple[int, int], **changed: Any) -> Evidence:
    stretches = 1 + dict(releases).get(MECHANISM.learn_steps, 0)
    own = Exposure(**{"mechanism": MECHANISM, "records": 2, "releases": releases, "stretches": stretches} | changed)
    return evidence(exposures={"mdl_1": own})


@pytest.mark.parametrize(
    "made",
    [
        evidence(exposures={}),
        with_releases(),
        with_releases((50, 1)),
        with_releases((7, 1), (50, 1)),
        with_releases((7, 2)),
        with_releases((64, 1)),
        with_releases((50, 2)),
        with_releases((7, 1), (57, 1)),
        with_releases((7, 2), (49, 1)),
        with_releases(*RELEASES, records=1),
    ],
    ids=lambda made: str([e.releases for e in made.exposures.values()]),
)
def test_versions_in_the_history_must_be_counted(made):
    """Evidence that omits, shortens or merges versions that contain the person is refused, even if the sums are
    right."""
    with pytest.raises(PreconditionError, match="own_releases_counted"):
        statement(made)


def test_versions_of_an_earlier_chain_may_be_counted():
    """Versions published before the model was retrained are not in the history but can still be counted."""
    made = with_releases((3, 5), (7, 4), (50, 3))
    assert certificate.check(statement(made)) == made.guarantees()


@pytest.mark.parametrize("stretches", [1, 2, 3])
def test_too_few_stretches_are_refused(stretches):
    """Evidence that states fewer contiguous stretches of the chain than there were training runs is refused, because it
    would understate how often a batch was read."""
    with pytest.raises(PreconditionError, match="stretches_counted"):
        statement(with_releases((3, 5), (7, 4), (50, 3), stretches=stretches))


def test_an_incomplete_training_run_is_refused():
    """A history that starts with fewer steps than the mechanism requires for training is refused."""
    made = evidence(history=(Run(steps=49),), steps_present=0)
    with pytest.raises(PreconditionError, match="learning_as_planned"):
        statement(made, kind="learn")


def test_a_canary_test_is_optional():
    """The statement of a run without a canary test says so and is valid."""
    document = statement(audited=False)
    assert document["audit"] is None
    assert certificate.check(document) == evidence().guarantees()


def test_a_statement_has_the_result_of_its_canary_test():
    """A statement contains the certified and the proved bounds for one record, and the number of records that a canary
    represents."""
    said = statement()["audit"]
    assert (said["lanes"], said["steps_before"], said["steps"], said["findings"]) == (256, 64, 9, [])
    assert said["records"] > 1
    assert 0 < said["mu_lower_bound"] < said["mu"]
    assert 0 < said["epsilon_lower_bound"] < said["epsilon"] < 1


@pytest.mark.parametrize(
    "plan",
    [
        CanaryPlan(lanes=256, steps_before=64, steps=10),
        CanaryPlan(lanes=256, steps_before=57, steps=9),
        CanaryPlan(lanes=256, steps_before=73, steps=9),
        CanaryPlan(lanes=256, steps_before=0, steps=9),
        CanaryPlan(lanes=256, steps_before=0, steps=50),
    ],
    ids=str,
)
def test_a_canary_test_of_another_run_is_refused(plan):
    """A valid canary test is refused if it covers fewer, more or other steps than the run took."""
    assert "audit_of_run" in refusal(audited(plan=plan))


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        ({"squares": 140.0}, "noise"),
        ({"squares": 400.0}, "noise"),
        ({"drift": 6.0}, "forgetting"),
        ({"guesses": Guesses(true_positives=128, members=128, false_positives=0, nonmembers=128)}, "guarantee"),
    ],
)  # fmt: skip
def test_a_refuting_canary_test_is_refused(changed, finding):
    """A canary test that refutes the certified bound is refused, whether or not its findings say so."""
    document = audited(**changed)
    assert document["audit"]["findings"] == [finding]
    assert ("audit_within_guarantee" if finding == "guarantee" else "audit_passed") in refusal(document)
    document["audit"]["findings"] = []
    refusal(document)


@pytest.mark.parametrize(
    ("name", "notion"), [("mu", None), ("epsilon", None), ("mu", "deletion"), ("epsilon", "deletion")]
)
def test_a_contradictory_statement_is_refused(name, notion):
    """A statement is refused if its lower bound for a canary exceeds the certified bound for the canary or for the
    person."""
    document = statement()
    above = next((one[name] for one in document["guarantees"] if one["notion"] == notion), document["audit"][name])
    document["audit"] |= {f"{name}_lower_bound": above * 1.01} | ({name: above * 2} if notion else {})
    assert "audit_within_guarantee" in refusal(document)


def test_a_version_that_misses_its_target_is_refused():
    """No statement is issued for a version that misses its target, because every statement is verified before it is
    signed."""
    with pytest.raises(PreconditionError, match="target_met"):
        statement(evidence(history=(*HISTORY[:3], Run(steps=9, records=800)), delta=1e-9))
