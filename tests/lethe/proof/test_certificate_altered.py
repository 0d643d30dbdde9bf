import math

import pytest

from lethe.proof import certificate
from lethe.proof.errors import PreconditionError
from tests.lethe.proof.stated import DELETED, MECHANISM, altered, refusal, statement
from tests.tables import each


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
        ("evidence/exposures/mdl_2/stretches", 1, "stretches_counted"),
        ("evidence/exposures/mdl_2/stretches", 2.0, "stretches"),
        ("evidence/mechanism/radius", 20, "mechanism_of_format"),
        ("evidence/exposures/mdl_1/mechanism/l2", 1, "mechanism_of_format"),
        ("evidence/delta", 1, "delta"),
        ("guarantees/0/delta", 0, "guarantees.delta="),
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
    """Any altered statement is refused, and the message names the altered part."""
    assert named in refusal(altered(path, value))


@each("part", [*statement(), *(f"{part}/{name}" for part in certificate._FIELDS for name in statement()[part])])
def test_a_missing_part_is_refused(part):
    """A statement that lacks one of its parts, or a field of one of its parts, is refused."""
    with pytest.raises(PreconditionError):
        certificate.check(altered(part, DELETED))


@each("field", [*statement()["audit"], *(f"guesses/{n}" for n in statement()["audit"]["guesses"])])
def test_a_missing_part_of_a_canary_test_is_refused(field):
    """A statement whose canary test lacks one of its numbers is refused."""
    refusal(altered(f"audit/{field}", DELETED))


@each("field", list(statement()["evidence"]) + [f"mechanism/{n}" for n in MECHANISM.to_json()])
def test_missing_evidence_is_refused(field):
    """A statement that lacks an item of evidence is refused."""
    refusal(altered(f"evidence/{field}", DELETED))


@each("part", list(statement()))
def test_a_part_of_the_wrong_kind_is_refused(part):
    """A part with the wrong JSON type is refused with a named error. Only the canary test can be null."""
    for value in ([None] if part != "audit" else []) + [[], {}, 0, True, math.nan, [[]], {"a": None}]:
        refusal(altered(part, value))


@pytest.mark.parametrize("document", [None, [], "statement", 1, True, {}], ids=str)
def test_a_malformed_statement_is_refused(document):
    """Any input other than a JSON object with all parts is refused."""
    assert "statement_complete" in refusal(document)


def test_missing_repeated_or_reordered_notions_are_refused():
    """A statement must contain all four guarantees, each once and in order, because an omitted guarantee could be the
    worst."""
    for chosen in ((0, 1, 2), (0, 1, 2, 3, 3), (0, 0, 1, 2), (1, 0, 2, 3), ()):
        document = statement()
        document["guarantees"] = [document["guarantees"][index] for index in chosen]
        refusal(document)
