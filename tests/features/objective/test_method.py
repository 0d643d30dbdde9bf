"""Certificates by objective perturbation: the numbers of a statement, and refusals of a verifier."""

import copy
import functools
from dataclasses import replace
from typing import Any

import pytest

from lethe.features.objective import accountant as objective_accountant
from lethe.features.objective.methods import METHOD, Perturbed, calibrate
from lethe.proof import accountant, certificate, methods
from lethe.proof.accountant import Exposure, Run
from lethe.proof.calibration import ModelSettings
from lethe.proof.canary_test import CanaryPlan, Guesses, Observed
from lethe.proof.errors import PreconditionError
from lethe.proof.guarantees import Evidence
from lethe.proof.losses import Objective
from tests.lethe.proof import lanes
from tests.tables import each

DELTA = 1e-4
COIN = Guesses(true_positives=64, members=128, false_positives=64, nonmembers=128)
"""Guesses that are no better than a coin's."""


@functools.cache
def mechanism() -> Perturbed:
    """Return a mechanism that is calibrated on first use. Calibrating it at import would cost every process that
    collects tests a second."""
    return calibrate(
        ModelSettings(epsilon=1.0, delta=DELTA),
        num_slots=1000,
        num_classes=2,
        objective=Objective.LOGISTIC_REGRESSION,
        num_parameters=11,
    )


def exposure(count: int, **further: int) -> Exposure:
    """Return the exposure of one record to this number of versions."""
    return Exposure(mechanism=mechanism(), records=1, releases=((mechanism().learn_steps, count),), **further)


PLAN = CanaryPlan(lanes=256, steps_before=0, steps=300)


def statement(observed: Observed | None = None, **changed: Any) -> dict[str, Any]:
    """Return a statement about a person whose single row was part of three versions."""
    evidence: Any = {
        "mechanism": mechanism(),
        "history": (Run(steps=mechanism().learn_steps, records=1),),
        "records": 1,
        "steps_present": 0,
        "exposures": {"mdl_1": exposure(3, stretches=4)},
        "delta": DELTA,
    }
    return certificate.statement(
        certificate_id="crt_1",
        issued_at="2026-11-28T12:00:00+00:00",
        request={"id": "dr_1", "submitted_at": "2026-11-28T11:00:00+00:00", "records": 1},
        model={"id": "mdl_1", "version": 4, "weights_sha256": "0" * 64},
        dataset={"id": "ds_1", "revision": 3, "digest": "0" * 64},
        run={"id": "run_1", "kind": "relearn", "steps": mechanism().learn_steps},
        epsilon=1.0,
        ledger={"sequence": 4, "hash": "0" * 64},
        evidence=Evidence(**evidence | changed),
        observed=observed,
    )


def test_a_statement_is_recomputed() -> None:
    """In a recomputed statement, the deletion and unlearning epsilons are 0 up to the solver's tolerance, and the
    adaptive epsilon is computed by convolution."""
    document = statement()
    unlearning, deletion, adaptive, release = certificate.check(document)
    assert (unlearning.epsilon, deletion.epsilon) == (0, 0)
    assert unlearning.mu == deletion.mu > 0
    assert 1 < adaptive.epsilon < release.epsilon
    one = mechanism().to_json()
    assert methods.read(one) == mechanism()
    assert isinstance(methods.read(one), Perturbed)


@each(
    ("path", "value", "named"),
    lambda: [
        (("theorem",), accountant.THEOREM, "theorem_of_method"),
        (("theorem",), "folklore/1", "format_known"),
        (("evidence", "mechanism", "method"), "langevin", "mechanism_of_format"),
        (("evidence", "mechanism", "noise_scale"), 100.0, "numbers_recompute"),
        (("evidence", "mechanism", "max_iterations"), 20, "learned_anew"),
        (("evidence", "history"), [[mechanism().learn_steps, 0], [mechanism().learn_steps, 1]], "learned_anew"),
        (("evidence", "steps_before"), 7, "history_complete"),
        (("guarantees", 2, "epsilon"), 0.5, "numbers_recompute"),
        (("guarantees", 1, "mu"), 0.0, "numbers_recompute"),
        (("invariants",), dict(certificate.INVARIANTS), "invariants_of_format"),
        (("limits",), certificate.LIMITS, "limits_of_format"),
        (("run", "kind"), "unlearn", "kind_of_run"),
    ],
)
def test_an_altered_statement_is_refused(path: tuple[Any, ...], value: Any, named: str) -> None:
    """A statement is refused with a specific error if any part of it does not follow from its evidence."""
    document = copy.deepcopy(statement())
    *way, last = path
    place = document
    for name in way:
        place = place[name]
    place[last] = value
    with pytest.raises(PreconditionError) as refused:
        certificate.check(document)
    assert refused.value.name == named


def test_a_canary_test_is_recomputed() -> None:
    """A statement with a run's canary test is recomputed from its counts. It states the release of one record as the
    accountant does, and a lower bound below it and below the statement's own release."""
    document = statement(lanes.observed(PLAN, mechanism()))
    *_, release = certificate.check(document)
    audit = document["audit"]
    assert (audit["notion"], audit["mu"]) == ("release", objective_accountant.mu(mechanism()))
    assert 0 < audit["epsilon_lower_bound"] <= min(audit["epsilon"], release.epsilon)
    assert 0 < audit["mu_lower_bound"] <= min(audit["mu"], release.mu)


@each(
    ("changed", "named"),
    [
        ({"mu_lower_bound": 0.0}, "numbers_recompute"),
        ({"mu_lower_bound": 9.0}, "audit_within_guarantee"),
        ({"epsilon": 0.01}, "audit_within_guarantee"),
        ({"findings": ["noise"]}, "numbers_recompute"),
        ({"notion": "deletion"}, "numbers_recompute"),
        ({"records": 500}, "records_of_plan"),
        ({"steps_before": 300}, "numbers_recompute"),
    ],
)
def test_an_altered_canary_test_is_refused(changed: dict[str, Any], named: str) -> None:
    """A statement is refused if a number of its canary test does not follow from the counts."""
    document = statement(lanes.observed(PLAN, mechanism()))
    document["audit"] |= changed
    with pytest.raises(PreconditionError) as refused:
        certificate.check(document)
    assert refused.value.name == named


@each(
    ("observed", "named"),
    lambda: [
        (lanes.observed(PLAN, mechanism(), squares=60.0), "audit_passed"),
        (lanes.observed(PLAN, mechanism(), drift=9.0), "audit_passed"),
        (lanes.observed(PLAN, mechanism(), visits=200.0), "audit_passed"),
        (lanes.observed(replace(PLAN, steps_before=300), mechanism(), guesses=COIN), "audit_of_run"),
        (lanes.observed(replace(PLAN, steps=299), mechanism()), "learned_anew"),
    ],
)
def test_a_canary_test_that_refutes_its_run_or_is_of_another_is_refused(observed: Observed, named: str) -> None:
    """No statement can be made about a run whose lanes refute it, or with the canary test of another run."""
    with pytest.raises(PreconditionError) as refused:
        statement(observed)
    assert refused.value.name == named


def test_rows_erased_since_the_version_still_count() -> None:
    """Records that were erased after the current version was trained on them still count towards its bound. Once the
    next version is published, the bound covers only the solver's tolerance."""
    chain = methods.replay(mechanism(), [Run(steps=mechanism().learn_steps)])
    still = METHOD.unlearning_mu(chain, records=2)
    assert METHOD.unlearning_mu(accountant.erased(chain, records=2)) == still > 2 / mechanism().noise_scale
    assert METHOD.deletion_mu(chain, records=2, steps_present=mechanism().learn_steps) == still
    assert METHOD.unlearning_mu(chain) == METHOD.deletion_mu(chain, records=2, steps_present=0) < 0.01


def test_guarantees_of_two_methods_compose() -> None:
    """If versions were made by two methods, the squares of their mus add up, and no convolution is computed for the
    mixture."""
    exposures = [exposure(count) for count in (1, 3, 4)]
    one, three, four = (methods.adaptive_mu([exposure]) for exposure in exposures)
    assert methods.adaptive_mu(exposures[:2]) == pytest.approx(four)
    assert four == pytest.approx(2 * one)
    assert three < four
