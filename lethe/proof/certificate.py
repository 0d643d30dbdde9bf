"""The statement of a certificate, and its recomputation from the statement alone: no database, no key, no data."""

from collections import Counter
from itertools import accumulate
from typing import Any

from lethe.proof import accountant, conversion, guarantees, network, target, wellformed
from lethe.proof.accountant import Exposure
from lethe.proof.audit import Observed
from lethe.proof.errors import PreconditionError, PrivacyError
from lethe.proof.guarantees import Evidence, Guarantee, Notion
from lethe.proof.wellformed import Fields, count, moment, named, number, sha256, truth, word

FORMAT = "lethe-certificate/2"

INVARIANTS = {
    "rows_null_read_back": "before the first step the person's rows were sealed anew as null and read back so, and"
    " the keys under which they could be opened before were destroyed",
    "row_norms_at_most_one": "every row was checked to have Euclidean norm <= 1 before the first step",
    "steps_as_planned": "the number of steps that ran is the number that was planned and is accounted for",
    "mechanism_as_frozen": "the run was given the mechanism frozen when the model was created",
    "fresh_system_noise": "every run drew its noise from a new key of the operating system, which was not kept",
    "records_counted": "before the first step the rows that were not null were counted: as many as are on record",
    "gradient_repeated": "the gradient at the published weights was computed again by other code, from the same rows",
    "last_iterate_only": "only the last iterate left the worker; runs that died were thrown away with their state",
    "one_run_per_dataset": "no published version was learned from the dataset while its rows were changed",
}
"""Properties that the service checks or ensures by construction in every run; a run in which one fails is not
published."""

LIMITS = [
    "The guarantee is for real arithmetic; gradients were computed in float32, at parameters kept in float64.",
    "Weights that somebody copied before the deletion still carry the person; only the adaptive guarantee covers them.",
    "Rows held under another subject id, or that copy this person's content, are not covered.",
    "That a deletion was requested is not hidden.",
    "The audit shows faults of what ran, not fraud: whoever signs could have made up what its lanes showed.",
    "Accuracy measured on an evaluation dataset tells about the people in it, whom no guarantee covers.",
    "It is about one model; what all models together tell about the person is the joint number of the request, in"
    " which mu^2 of the models add up.",
    "Where a dataset has no budget set in advance, the adaptive number was summed afterwards, over what had been"
    " published, so it holds for a schedule of runs that nobody chose by reading versions.",
    "Settings that were tuned on this data (l2, noise, step size, which models were made and kept) tell about it, and"
    " no guarantee covers that.",
]

_FIELDS: dict[str, Fields] = {
    "request": {"id": named("dr"), "submitted_at": moment, "records": count(1)},
    "model": {"id": named("mdl"), "version": count(1), "weights_sha256": sha256},
    "dataset": {"id": named("ds"), "revision": count(0), "digest": sha256},
    "run": {"id": named("run"), "kind": word, "steps": count(1)},
    "target": {
        "epsilon": number,
        "delta": number,
        "largest_epsilon": number,
        "largest_delta": number,
        "widened": truth,
    },
    "ledger": {"sequence": count(1), "hash": sha256},
}
_ALONE: Fields = {"certificate_id": named("crt"), "issued_at": moment}
_PARTS = {
    *_FIELDS,
    "format",
    "certificate_id",
    "issued_at",
    "theorem",
    "evidence",
    "guarantees",
    "audit",
    "invariants",
    "limits",
}


def statement(
    *,
    certificate_id: str,
    issued_at: str,
    request: dict[str, Any],
    model: dict[str, Any],
    dataset: dict[str, Any],
    run: dict[str, Any],
    epsilon: float,
    ledger: dict[str, Any],
    evidence: Evidence,
    observed: Observed | None,
) -> dict[str, Any]:
    """The statement of one person's deletion from one model version. Raises what `check` raises if it is not true."""
    document = {
        "format": FORMAT,
        "certificate_id": certificate_id,
        "issued_at": issued_at,
        "request": request,
        "model": model,
        "dataset": dataset,
        "run": run,
        "target": target.target(
            epsilon=epsilon, delta=evidence.delta, num_slots=evidence.mechanism.num_slots
        ).to_json(),
        "theorem": accountant.THEOREM,
        "evidence": evidence.to_json(),
        "guarantees": [guarantee.stated() for guarantee in evidence.guarantees()],
        "audit": observed and observed.to_json(evidence.mechanism, delta=evidence.delta),
        "invariants": INVARIANTS,
        "limits": limits(evidence),
        "ledger": ledger,
    }
    check(document)
    return document


def check(document: dict[str, Any]) -> list[Guarantee]:
    """Recompute every number of a statement; returns the guarantees, recomputed.

    Raises `PreconditionError` naming what does not hold, also for a field that is missing or of the wrong type.
    """
    try:
        if document["format"] == "lethe-certificate/1":
            raise PreconditionError(
                "format_known",
                f"Expected a {FORMAT} statement, not one of revision 1, which only releases that signed it verify",
            )
        if document["format"] != FORMAT or document["theorem"] != accountant.THEOREM:
            raise PreconditionError("format_known", f"Expected a {FORMAT} statement that cites {accountant.THEOREM}")
        evidence = Evidence.from_json(document["evidence"])
        recomputed = evidence.guarantees()
        for stated, guarantee in zip(document["guarantees"], recomputed, strict=True):
            guarantees.confirm("guarantees", stated=stated, recomputed=guarantee.stated())
        guarantees.confirm("evidence", stated=document["evidence"], recomputed=evidence.to_json())
        _check_complete(document, evidence)
        _check_consistent(document, evidence)
        _check_audit(document["audit"], document["run"], evidence)
    except PrivacyError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise PreconditionError(
            "statement_complete", f"Expected a complete statement ({type(error).__name__})"
        ) from error
    return recomputed


_OF_FORGETTING = (Notion.UNLEARNING, Notion.DELETION)


def check_limits(found: list[Guarantee], *, max_epsilon: float | None, max_delta: float | None) -> None:
    """Raises `PreconditionError` if what a statement guarantees of forgetting is weaker than a verifier accepts: the
    notions that a target is about, `unlearning` and `deletion`."""
    for guarantee in found:
        if guarantee.notion not in _OF_FORGETTING:
            continue
        for name, most in (("epsilon", max_epsilon), ("delta", max_delta)):
            if most is not None and not getattr(guarantee, name) <= most:
                stated = f"epsilon={guarantee.epsilon:.6g} at delta={guarantee.delta:.6g}"
                raise PreconditionError(
                    "within_limits", f"Expected {name} <= {most:.10g}: it guarantees {guarantee.notion} {stated}"
                )


def limits(evidence: Evidence) -> list[str]:
    """The limits of a statement: those of all, and one for each public network that a model of the evidence rests on,
    the network of its own model first."""
    others = (exposure.mechanism.network for _, exposure in sorted(evidence.exposures.items()))
    return [*LIMITS, *network.rests_on([evidence.mechanism.network, *others])]


def _check_complete(document: dict[str, Any], evidence: Evidence) -> None:
    """Nothing is missing, nothing was added, and what the format fixes is as the format has it."""
    if document.keys() != _PARTS:
        raise PreconditionError("statement_complete", f"Expected the parts {sorted(_PARTS)}")
    wellformed.check("the statement", {name: document[name] for name in _ALONE}, _ALONE)
    for part, fields in _FIELDS.items():
        wellformed.check(part, document[part], fields)
    for part, fixed in {"invariants": INVARIANTS, "limits": limits(evidence)}.items():
        if document[part] != fixed:
            raise PreconditionError(f"{part}_of_format", f"Expected the {part} of {FORMAT}")


def _check_audit(stated: dict[str, Any] | None, run: dict[str, Any], evidence: Evidence) -> None:
    """The audit, if the run had one, proves no more than is certified, was of this run, and found nothing."""
    if stated is None:
        return
    observed = Observed.from_json(stated)
    certified = [(stated["mu"], stated["epsilon"])]
    one_run_before = len(evidence.history) <= 2 or evidence.mechanism.cool_down == 1  # as lanes have it
    deleted_now = evidence.steps_present == observed.plan.steps_before and one_run_before
    if observed.plan.notion is Notion.RELEASE or deleted_now:
        certified += [(g.mu, g.epsilon) for g in evidence.guarantees() if g.notion is observed.plan.notion]
    for mu, epsilon in certified:
        if stated["mu_lower_bound"] > mu or stated["epsilon_lower_bound"] > epsilon:
            raise PreconditionError("audit_within_guarantee", "Expected no more to be proved than is certified")
    guarantees.confirm("audit", stated=stated, recomputed=observed.to_json(evidence.mechanism, delta=evidence.delta))
    before = evidence.steps_before + sum(run.steps for run in evidence.history[:-1])
    if (observed.plan.steps_before, observed.plan.steps) != (before, run["steps"]):
        raise PreconditionError("audit_of_run", "Expected the audit to be of the run that the statement is about")
    if observed.findings(evidence.mechanism):
        raise PreconditionError("audit_passed", "Expected an audit that found nothing")


def _releases_counted(evidence: Evidence, own: Exposure | None) -> bool:
    """Every run that the person's records went through is among the model's own releases.

    Of those that are left out (`accountant.compact`) the steps must be among them.
    """
    if own is None:
        return evidence.steps_present == 0
    ends = accumulate((run.steps for run in evidence.history), initial=evidence.steps_before)
    next(ends)
    later = Counter(run.steps for run, end in zip(evidence.history, ends, strict=True) if end <= evidence.steps_present)
    left_out = min(evidence.steps_before, evidence.steps_present)
    counted: Counter[int] = Counter()
    for steps, times in own.releases:
        counted[steps] += times
    return (
        (own.mechanism, own.records) == (evidence.mechanism, evidence.records)
        and later <= counted
        and left_out <= sum(steps * times for steps, times in (counted - later).items())
    )


def _check_consistent(document: dict[str, Any], evidence: Evidence) -> None:
    """The parts of the statement speak of the same run, model, records and target."""
    own = evidence.exposures.get(document["model"]["id"])
    kinds = {"unlearn"} if len(evidence.history) > 1 or evidence.steps_before else {"learn", "relearn"}
    learned = evidence.steps_before or evidence.history[0].steps
    stated = document["target"]
    reached = target.target(
        epsilon=stated["epsilon"], delta=stated["delta"], num_slots=evidence.mechanism.num_slots
    ).to_json()
    mu_target = conversion.gdp_mu(epsilon=stated["epsilon"], delta=stated["delta"])
    unlearned = next(g for g in evidence.guarantees() if g.notion is Notion.UNLEARNING)
    conditions = {
        "steps_of_run": document["run"]["steps"] == evidence.history[-1].steps,
        "kind_of_run": document["run"]["kind"] in kinds,
        "learning_as_planned": learned >= evidence.mechanism.learn_steps,
        "records_of_request": document["request"]["records"] == evidence.records,
        "own_releases_counted": _releases_counted(evidence, own),
        "delta_of_target": evidence.delta == stated["delta"],
        "bounds_of_target": stated == reached,
        "target_met": unlearned.mu <= mu_target * (1 + guarantees.TOLERANCE),
    }
    for name, holds in conditions.items():
        if not holds:
            raise PreconditionError(name, f"Expected the statement to satisfy {name}")
