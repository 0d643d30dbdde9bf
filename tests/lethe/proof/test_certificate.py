import copy
import json
import math
from typing import Any

import pytest

from lethe.proof import accountant, certificate
from lethe.proof.accountant import Exposure, Run
from lethe.proof.audit import AuditPlan, Guesses, Observed
from lethe.proof.errors import PreconditionError, PrivacyError
from lethe.proof.guarantees import Evidence
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from tests.lethe.proof import lanes
from tests.tables import each

MECHANISM = Mechanism(
    objective=Objective.LOGISTIC_REGRESSION,
    num_slots=1000,
    num_classes=2,
    l2=0.05,
    step_size=2.0,
    noise_scale=0.1,
    radius=20.0,
    learn_steps=50,
)
HISTORY = (Run(steps=50), Run(steps=7, records=1), Run(steps=7), Run(steps=9, records=3))
RELEASES = ((7, 2), (50, 1))
DELETED = "(deleted)"


def evidence(**changed: Any) -> Evidence:
    """Two records, deleted after 64 steps of this model, which also fed another model."""
    parts: dict[str, Any] = {
        "mechanism": MECHANISM,
        "history": HISTORY,
        "records": 2,
        "steps_present": 64,
        "exposures": {
            "mdl_1": Exposure(mechanism=MECHANISM, records=2, releases=RELEASES),
            "mdl_2": Exposure(mechanism=MECHANISM, records=1, releases=((50, 1),)),
        },
        "delta": 1e-4,
    }
    return Evidence(**parts | changed)


def observed(made: Evidence, **changed: Any) -> Observed:
    """What the lanes of the last run of the history might have shown."""
    *before, last = (run.steps for run in made.history)
    plan = AuditPlan(lanes=256, steps_before=sum(before), steps=last)
    return lanes.observed(**{"plan": plan, "mechanism": MECHANISM} | changed)


def statement(made: Evidence | None = None, *, kind: str = "unlearn", audited: bool = True) -> dict[str, Any]:
    """A true statement, as the holder of a certificate reads it."""
    made = made or evidence()
    document = certificate.statement(
        certificate_id="crt_1",
        issued_at="2025-05-05T12:00:00+00:00",
        request={"id": "dr_1", "submitted_at": "2025-05-05T11:00:00+00:00", "records": made.records},
        model={"id": "mdl_1", "version": 4, "weights_sha256": "ab" * 32},
        dataset={"id": "ds_1", "revision": 2, "digest": "cd" * 32},
        run={"id": "run_1", "kind": kind, "steps": made.history[-1].steps},
        epsilon=1.0,
        ledger={"sequence": 4, "hash": "ef" * 32},
        evidence=made,
        observed=observed(made) if audited else None,
    )
    read: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    return read


def altered(path: str, value: Any) -> dict[str, Any]:
    """The statement with one thing in it replaced, added or taken out."""
    document = copy.deepcopy(statement())
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    place: Any = document
    for key in parents:
        place = place[key]
    if value is DELETED:
        del place[last]
    else:
        place[last] = value
    return document


def refusal(document: Any) -> str:
    with pytest.raises(PrivacyError) as refused:
        certificate.check(document)
    return str(refused.value)


# --- true statements -------------------------------------------------------------------------------------------------


def test_a_true_statement_is_recomputed():
    """Checking a statement returns the guarantees that its evidence implies."""
    assert certificate.check(statement()) == evidence().guarantees()


def test_a_statement_after_learning_again():
    """After learning again, and for somebody erased before the first step, a statement is true too."""
    relearned = evidence(history=(Run(steps=50, records=3),), steps_present=0)
    assert certificate.check(statement(relearned, kind="relearn"))[0].mu == 0
    unseen = evidence(history=(Run(steps=50),), steps_present=0, exposures={})
    assert [g.mu for g in certificate.check(statement(unseen, kind="learn"))][:3] == [0, 0, 0]


def test_a_statement_without_the_old_part_of_its_history():
    """A history whose old runs are left out still accounts for the versions published in its course."""
    history = [Run(steps=50), *[Run(steps=100, records=1)] * 60, Run(steps=9, records=3)]
    left_out, short = accountant.compact(MECHANISM, history)
    assert 50 < left_out < 6050
    exposure = Exposure(mechanism=MECHANISM, records=2, releases=((50, 1), (100, 60)))
    made = evidence(steps_before=left_out, history=tuple(short), steps_present=6050, exposures={"mdl_1": exposure})
    assert certificate.check(statement(made, audited=False)) == made.guarantees()
    of_all = evidence(history=tuple(history), steps_present=6050, exposures={"mdl_1": exposure})
    for less, all_of_it in zip(made.guarantees(), of_all.guarantees(), strict=True):
        assert less.mu == pytest.approx(all_of_it.mu, rel=1e-12)
    few = Exposure(mechanism=MECHANISM, records=2, releases=((50, 1), (100, 20)))
    lacking = evidence(steps_before=left_out, history=tuple(short), steps_present=6050, exposures={"mdl_1": few})
    with pytest.raises(PreconditionError, match="own_releases_counted"):
        statement(lacking, audited=False)


def test_another_machine_may_round_otherwise():
    """A number that differs in the tenth digit is the same number."""
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
    """Whatever is altered in a guarantee is refused, and the message names the field."""
    assert f"guarantees.{path.split('/')[2]}=" in refusal(altered(path, value))


@each(
    ("path", "value", "named"),
    [
        ("format", "lethe-certificate/1", "format_known"),
        ("theorem", "folklore/1", "format_known"),
        ("evidence/mechanism/noise_scale", 0.2, "constants_follow: Expected step_variance"),
        ("evidence/mechanism/l2", 0.06, "constants_follow: Expected strong_convexity"),
        ("evidence/mechanism/contraction", 0.8, "constants_follow: Expected contraction"),
        ("evidence/mechanism/gradient_bound", 0.5, "constants_follow: Expected gradient_bound"),
        ("evidence/mechanism/num_slots", 10**6, "num_batches=1 == 1000"),
        ("evidence/mechanism/num_slots", 10**400, "num_slots"),
        ("evidence/mechanism/num_slots", True, "num_slots"),
        ("evidence/mechanism/noise_scale", math.inf, "noise_scale"),
        ("evidence/mechanism/noise_scale", math.nan, "noise_scale"),
        ("evidence/mechanism/noise_scale", 10**400, "noise_scale"),
        ("evidence/mechanism/step_size", 10.0, "contraction_below_one"),
        ("evidence/mechanism/l2", 1e-17, "contraction_below_one"),
        ("evidence/mechanism/note", 1, "mechanism_of_format"),
        ("evidence/history", [], "history_complete"),
        ("evidence/history/3/0", 10, "guarantees.mu="),
        ("evidence/history/3/0", 10**12, "guarantees.mu="),
        ("evidence/history/3/0", 10**400, "steps"),
        ("evidence/history/3/0", 9.0, "steps"),
        ("evidence/history/2/0", True, "steps"),
        ("evidence/history/2/0", -7, "steps"),
        ("evidence/history/3/1", 1, "deletion_in_history"),
        ("evidence/history/3/1", 2, "guarantees.mu="),
        ("evidence/history/1/1", -1, "records"),
        ("evidence/history/1/1", 0, "guarantees.mu="),
        ("evidence/records", 1, "guarantees.mu="),
        ("evidence/records", True, "records"),
        ("evidence/steps_present", 57, "deletion_in_history"),
        ("evidence/steps_present", 0, "guarantees.mu="),
        ("evidence/steps_present", -1, "steps_present"),
        ("evidence/steps_since", 10, "evidence.steps_since"),
        ("evidence/delta", 0.01, "guarantees."),
        ("evidence/delta", math.nan, "delta"),
        ("evidence/exposures/mdl_2/releases/0/1", -1, "count"),
        ("evidence/exposures/mdl_2/releases/0/1", 0, "count"),
        ("evidence/exposures/mdl_2/releases/0/0", 0, "steps"),
        ("evidence/exposures/mdl_2/releases/0/0", 1, "guarantees.mu="),
        ("evidence/exposures/mdl_2/records", 0, "records"),
        ("evidence/exposures/mdl_2", DELETED, "guarantees.mu="),
        ("evidence/exposures/mdl_2/note", 1, "evidence.exposures"),
        ("evidence/note", 1, "evidence"),
        ("run/steps", 10, "steps_of_run"),
        ("run/steps", 9.0, "run.steps"),
        ("run/kind", "relearn", "kind_of_run"),
        ("run/kind", "rewind", "kind_of_run"),
        ("run/note", "", "fields of run"),
        ("request/records", 1, "records_of_request"),
        ("request/records", True, "request.records"),
        ("target/delta", 0.01, "delta_of_target"),
        ("target/epsilon", 0.01, "target_met"),
        ("target/epsilon", math.nan, "epsilon"),
        ("target/epsilon", math.inf, "epsilon"),
        ("target/epsilon", 1, "target.epsilon"),
        ("target/widened", True, "bounds_of_target"),
        ("target/largest_epsilon", 100.0, "bounds_of_target"),
        ("target/largest_delta", 0.5, "bounds_of_target"),
        ("model/id", "mdl_2", "own_releases_counted"),
        ("model/id", "mdl_3", "own_releases_counted"),
        ("model/id", None, "model.id"),
        ("model/weights_sha256", None, "model.weights_sha256"),
        ("dataset/revision", "2", "dataset.revision"),
        ("ledger/hash", 1, "ledger.hash"),
        ("ledger/sequence", 0, "ledger.sequence"),
        ("ledger/hash", "EF" * 32, "ledger.hash"),
        ("model/version", -2, "model.version"),
        ("model/version", 0, "model.version"),
        ("model/version", 2**60, "model.version"),
        ("model/weights_sha256", "", "model.weights_sha256"),
        ("model/weights_sha256", "ab" * 31, "model.weights_sha256"),
        ("model/weights_sha256", "zz" * 32, "model.weights_sha256"),
        ("dataset/digest", "cd" * 32 + "\n", "dataset.digest"),
        ("dataset/id", "", "dataset.id"),
        ("dataset/id", "mdl_1", "dataset.id"),
        ("dataset/revision", -1, "dataset.revision"),
        ("request/id", "dr_1/../2", "request.id"),
        ("request/submitted_at", "", "request.submitted_at"),
        ("issued_at", "", "issued_at"),
        ("issued_at", "2025-05-05", "issued_at"),
        ("issued_at", "2025-05-05T12:00:00", "issued_at"),
        ("issued_at", "2025-13-05T12:00:00+00:00", "issued_at"),
        ("issued_at", "yesterday", "issued_at"),
        ("issued_at", 1746446400, "issued_at"),
        ("certificate_id", "", "certificate_id"),
        ("audit/lanes", 128, "a guess for every lane"),
        ("audit/lanes", 255, "lanes=255"),
        ("audit/lanes", True, "lanes"),
        ("audit/steps", 10, "records_of_plan"),
        ("audit/steps_before", 0, "records_of_plan"),
        ("audit/guesses/true_positives", 128, "audit.mu_lower_bound="),
        ("audit/guesses/true_positives", 129, "no more positives"),
        ("audit/guesses/true_positives", 116.0, "true_positives"),
        ("audit/guesses/false_positives", 0, "audit.mu_lower_bound="),
        ("audit/guesses/members", 120, "a guess for every lane"),
        ("audit/guesses/nonmembers", DELETED, "statement_complete"),
        ("audit/squares", 500.0, "audit.findings"),
        ("audit/squares", math.nan, "squares"),
        ("audit/squares", "256", "statement_complete"),
        ("audit/drift", -8.0, "audit.findings"),
        ("audit/drift", math.inf, "drift"),
        ("audit/records", 1, "records_of_plan"),
        ("audit/mu", 9.0, "audit.mu="),
        ("audit/epsilon", 9.0, "audit.epsilon="),
        ("audit/mu_lower_bound", 0.0, "audit.mu_lower_bound="),
        ("audit/epsilon_lower_bound", 0.0, "audit.epsilon_lower_bound="),
        ("audit/error", 0.05, "audit.error="),
        ("audit/notion", "release", "audit.notion="),
        ("audit/findings", ["noise"], "audit.findings"),
        ("audit/findings", None, "audit.findings"),
        ("audit/note", "fine", "audit"),
        ("invariants/row_norms_at_most_one", DELETED, "invariants_of_format"),
        ("invariants", {}, "invariants_of_format"),
        ("limits", [], "limits_of_format"),
        ("limits/0", "None.", "limits_of_format"),
        ("summary", "epsilon is 0", "the parts"),
    ],
)  # fmt: skip
def test_an_altered_statement_is_refused(path, value, named):
    """Whatever is altered in a statement is refused, and the message names the part."""
    assert named in refusal(altered(path, value))


@each("part", [*statement(), *(f"{part}/{name}" for part in certificate._FIELDS for name in statement()[part])])
def test_nothing_may_be_missing(part):
    """A statement that lacks any part, or any field of a part, is refused."""
    with pytest.raises(PreconditionError):
        certificate.check(altered(part, DELETED))


@each("field", [*statement()["audit"], *(f"guesses/{n}" for n in statement()["audit"]["guesses"])])
def test_no_part_of_an_audit_may_be_missing(field):
    """A statement whose audit lacks any of its numbers is refused."""
    refusal(altered(f"audit/{field}", DELETED))


@each("field", list(statement()["evidence"]) + [f"mechanism/{n}" for n in MECHANISM.to_json()])
def test_no_evidence_may_be_missing(field):
    """A statement that lacks any of its evidence is refused."""
    refusal(altered(f"evidence/{field}", DELETED))


@each("part", list(statement()))
def test_a_part_of_the_wrong_kind_is_refused(part):
    """A part that is of another JSON type is refused, never with an unnamed error; an audit alone may be null."""
    for value in ([None] if part != "audit" else []) + [[], {}, 0, True, math.nan, [[]], {"a": None}]:
        refusal(altered(part, value))


@pytest.mark.parametrize("document", [None, [], "statement", 1, True, {}], ids=str)
def test_what_is_no_statement_is_refused(document):
    """What is not a JSON object with all parts is refused."""
    assert "statement_complete" in refusal(document)


def test_no_notion_may_be_left_out_doubled_or_reordered():
    """A statement has all four guarantees, once each, in their order: a missing one could be the worst."""
    for chosen in ((0, 1, 2), (0, 1, 2, 3, 3), (0, 0, 1, 2), (1, 0, 2, 3), ()):
        document = statement()
        document["guarantees"] = [document["guarantees"][index] for index in chosen]
        refusal(document)


def with_releases(*releases: tuple[int, int], **changed: Any) -> Evidence:
    own = Exposure(**{"mechanism": MECHANISM, "records": 2, "releases": releases} | changed)
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
def test_versions_that_the_history_shows_must_be_counted(made):
    """Evidence that leaves out, shortens or merges versions with the person is refused, though its sums are right."""
    with pytest.raises(PreconditionError, match="own_releases_counted"):
        statement(made)


def test_versions_of_an_earlier_chain_may_be_counted():
    """Versions published before the model was learned again are in no history and count all the same."""
    made = with_releases((3, 5), (7, 4), (50, 3))
    assert certificate.check(statement(made)) == made.guarantees()


def test_a_model_that_has_not_learned_gets_no_statement():
    """A history that begins with fewer steps than the mechanism learns in is refused."""
    made = evidence(history=(Run(steps=49),), steps_present=0)
    with pytest.raises(PreconditionError, match="learning_as_planned"):
        statement(made, kind="learn")


def audited(**changed: Any) -> dict[str, Any]:
    """The statement with the audit that follows from what is changed here."""
    shown = observed(evidence(), **changed).to_json(MECHANISM, delta=evidence().delta)
    return altered("audit", json.loads(json.dumps(shown)))


def test_a_run_need_not_be_audited():
    """Where no audit was made, the statement says so, and is true."""
    document = statement(audited=False)
    assert document["audit"] is None
    assert certificate.check(document) == evidence().guarantees()


def test_what_an_audit_says_is_recomputed():
    """The statement says what is certified of one record, what was proved, and of how many a canary is."""
    said = statement()["audit"]
    assert (said["lanes"], said["steps_before"], said["steps"], said["findings"]) == (256, 64, 9, [])
    assert said["records"] > 1
    assert 0 < said["mu_lower_bound"] < said["mu"]
    assert 0 < said["epsilon_lower_bound"] < said["epsilon"] < 1


@pytest.mark.parametrize(
    "plan",
    [
        AuditPlan(lanes=256, steps_before=64, steps=10),
        AuditPlan(lanes=256, steps_before=57, steps=9),
        AuditPlan(lanes=256, steps_before=73, steps=9),
        AuditPlan(lanes=256, steps_before=0, steps=9),
        AuditPlan(lanes=256, steps_before=0, steps=50),
    ],
    ids=str,
)
def test_an_audit_of_another_run_is_refused(plan):
    """An audit that holds, but was of fewer, of more or of other steps, does not stand in for one of this run."""
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
def test_an_audit_with_a_finding_gets_no_statement(changed, finding):
    """An audit that refutes what is certified is refused, whether it says so or hides it."""
    document = audited(**changed)
    assert document["audit"]["findings"] == [finding]
    assert ("audit_within_guarantee" if finding == "guarantee" else "audit_passed") in refusal(document)
    document["audit"]["findings"] = []
    refusal(document)


@pytest.mark.parametrize(
    ("name", "notion"), [("mu", None), ("epsilon", None), ("mu", "deletion"), ("epsilon", "deletion")]
)
def test_a_statement_that_contradicts_itself_is_refused(name, notion):
    """What is said to be proved of a canary exceeds neither what is certified of it, nor of the person."""
    document = statement()
    above = next((one[name] for one in document["guarantees"] if one["notion"] == notion), document["audit"][name])
    document["audit"] |= {f"{name}_lower_bound": above * 1.01} | ({name: above * 2} if notion else {})
    assert "audit_within_guarantee" in refusal(document)


def test_what_misses_its_target_gets_no_statement():
    """The service itself cannot state what is not true: the statement is checked before it is signed."""
    with pytest.raises(PreconditionError, match="target_met"):
        statement(evidence(history=(*HISTORY[:3], Run(steps=9, records=800)), delta=1e-9))
