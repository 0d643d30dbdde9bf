"""Certificate statements, and their verification from the statement alone, without a database, keys or data."""

from collections import Counter
from itertools import accumulate
from typing import Any

from lethe.proof import accountant, canary_test, conversion, errors, guarantees, methods, network, target, wellformed

FORMAT = "lethe-certificate/2"

INVARIANTS = {
    "rows_null_read_back": "before the first step the person's rows were replaced by null rows, which were read back,"
    " and the keys to their previous content were destroyed",
    "row_norms_at_most_one": "before the first step every row was checked to have Euclidean norm <= 1",
    "steps_as_planned": "the number of steps that ran is the planned number, which is the one that is accounted for",
    "mechanism_as_frozen": "the run used the mechanism that was frozen when the model was created",
    "fresh_system_noise": "every run drew its noise from a new key of the operating system, which was not stored",
    "second_moment_kept": "if the mechanism states a second moment, learning checked every batch against it before the"
    " first step that read the batch, and no row has been added since",
    "row_weights_in_range": "if the mechanism states a bound on the weights of rows, every weight was checked to be"
    " between 0 and the bound before the first step",
    "records_counted": "before the first step the rows that are not null were as many as are recorded",
    "gradient_repeated": "other code computed the gradient at the published weights, and agreed within rounding",
    "last_iterate_only": "only the last iterate left the worker; the state of runs that died was discarded",
    "one_run_per_dataset": "no published version was learned from the dataset while its rows were being changed",
}
"""Properties that the service checks or ensures by construction in every run.

A run that violates one of them is not published.
"""

COMMON_LIMITS = [
    "The canary test detects faults in the code that ran, not fraud: the signer could have invented its results.",
    "Copies of weights made before the deletion still carry the person; only the adaptive guarantee covers them.",
    "Rows under another subject id, and rows that copy this person's content, are not covered.",
    "The fact that a deletion was requested is not hidden.",
    "The number of slots of the dataset, including empty ones, is public.",
    "Whether a run was refused can depend on the rows (on their second moment, or on the check of a last step), and no"
    " guarantee covers what a refusal reveals.",
    "Reports of rehearsals on this data reveal something about the people in it, and no guarantee covers them.",
    "Accuracy measured on an evaluation dataset reveals something about the people in it, whom no guarantee covers.",
    "A certificate is about one model; what all models together reveal about the person is the joint number of the"
    " request, in which mu^2 of the models add up.",
    "If the dataset had no budget set in advance, the adaptive number was summed afterwards over the published"
    " versions, so it holds only for a schedule of runs that was not chosen by reading versions.",
    "Settings that were tuned on this data (l2, noise, step size, which models were created and kept) reveal something"
    " about it, and no guarantee covers that.",
]
"""Limits common to certificates of all methods."""
LIMITS = [
    "The guarantee is for real arithmetic; gradients were computed in float32, at parameters kept in float64.",
    "If the mechanism states a second moment, `release` compares only with other records that keep to it.",
    *COMMON_LIMITS,
]

_FIELDS: dict[str, wellformed.Fields] = {
    "request": {"id": wellformed.named("dr"), "submitted_at": wellformed.moment, "records": wellformed.count(1)},
    "model": {"id": wellformed.named("mdl"), "version": wellformed.count(1), "weights_sha256": wellformed.sha256},
    "dataset": {"id": wellformed.named("ds"), "revision": wellformed.count(0), "digest": wellformed.sha256},
    "run": {"id": wellformed.named("run"), "kind": wellformed.word, "steps": wellformed.count(1)},
    "target": {
        "epsilon": wellformed.number,
        "delta": wellformed.number,
        "largest_epsilon": wellformed.number,
        "largest_delta": wellformed.number,
        "widened": wellformed.truth,
    },
    "ledger": {"sequence": wellformed.count(1), "hash": wellformed.sha256},
}
_ALONE: wellformed.Fields = {"certificate_id": wellformed.named("crt"), "issued_at": wellformed.moment}
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
    evidence: guarantees.Evidence,
    observed: canary_test.Observed | None,
) -> dict[str, Any]:
    """Return the statement of one person's deletion from one model version.

    `issued_at` is a time with a time zone (RFC 3339). `observed` contains the statistics of the run's canary test; it
    is None if the run had no test.

    Raises:
        PreconditionError: if the statement does not hold (`check`).
    """
    method = methods.of(evidence.mechanism)
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
        "theorem": method.theorem,
        "evidence": evidence.to_json(),
        "guarantees": [guarantee.stated() for guarantee in evidence.guarantees()],
        "audit": observed and observed.to_json(evidence.mechanism, delta=evidence.delta),
        "invariants": dict(method.invariants),
        "limits": limits(evidence),
        "ledger": ledger,
    }
    check(document)
    return document


def check(document: dict[str, Any]) -> list[guarantees.Guarantee]:
    """Recompute every number in a statement and return the recomputed guarantees.

    Raises:
        PrivacyError: if a number is out of range. Its subclass `PreconditionError`, with the violated condition as
            `name`, if a number differs or a field is missing or of the wrong type.
    """
    try:
        theorems = [method.theorem for method in methods.all_methods().values()]
        if document["format"] != FORMAT or document["theorem"] not in theorems:
            raise errors.PreconditionError(
                "format_known", f"Expected a {FORMAT} statement that cites {' or '.join(theorems)}"
            )
        evidence = guarantees.Evidence.from_json(document["evidence"])
        recomputed = evidence.guarantees()
        for stated, guarantee in zip(document["guarantees"], recomputed, strict=True):
            guarantees.confirm("guarantees", stated=stated, recomputed=guarantee.stated())
        guarantees.confirm("evidence", stated=document["evidence"], recomputed=evidence.to_json())
        _check_complete(document, evidence)
        _check_consistent(document, evidence)
        _check_canary_test(document["audit"], document["run"], evidence)
    except errors.PrivacyError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise errors.PreconditionError(
            "statement_complete", f"Expected a complete statement ({type(error).__name__})"
        ) from error
    return recomputed


_TARGET_NOTIONS = (guarantees.Notion.UNLEARNING, guarantees.Notion.DELETION)


def check_limits(recomputed: list[guarantees.Guarantee], *, max_epsilon: float | None, max_delta: float | None) -> None:
    """Check the `unlearning` and `deletion` guarantees against a verifier's limits, where None means no limit.

    Raises:
        PreconditionError: if a guarantee exceeds a limit.
    """
    for guarantee in recomputed:
        if guarantee.notion not in _TARGET_NOTIONS:
            continue
        for name, limit in (("epsilon", max_epsilon), ("delta", max_delta)):
            if limit is not None and not getattr(guarantee, name) <= limit:
                stated = f"epsilon={guarantee.epsilon:.6g} at delta={guarantee.delta:.6g}"
                raise errors.PreconditionError(
                    "within_limits", f"Expected {name} <= {limit:.10g}: it guarantees {guarantee.notion} {stated}"
                )


def limits(evidence: guarantees.Evidence) -> list[str]:
    """Return a statement's limitations: the common `LIMITS` and one sentence per public network.

    The networks are those of all models in the evidence, starting with the statement's own model.
    """
    other_networks = (exposure.mechanism.network for _, exposure in sorted(evidence.exposures.items()))
    return [*methods.of(evidence.mechanism).limits, *network.rests_on([evidence.mechanism.network, *other_networks])]


def _check_complete(document: dict[str, Any], evidence: guarantees.Evidence) -> None:
    """Check that a statement has exactly the parts that its format requires, and the format's fixed texts."""
    if document.keys() != _PARTS:
        raise errors.PreconditionError("statement_complete", f"Expected the parts {sorted(_PARTS)}")
    wellformed.check("the statement", {name: document[name] for name in _ALONE}, _ALONE)
    for part, fields in _FIELDS.items():
        wellformed.check(part, document[part], fields)
    invariants = dict(methods.of(evidence.mechanism).invariants)
    for part, fixed in {"invariants": invariants, "limits": limits(evidence)}.items():
        if document[part] != fixed:
            raise errors.PreconditionError(f"{part}_of_format", f"Expected the {part} of {FORMAT}")


def _check_canary_test(stated: dict[str, Any] | None, run: dict[str, Any], evidence: guarantees.Evidence) -> None:
    """Check that the canary test, if any, belongs to this run, has no findings and proves no more than is certified."""
    if stated is None:
        return
    observed = canary_test.Observed.from_json(stated)
    certified = [(stated["mu"], stated["epsilon"])]
    # A canary plan counts the steps before its run as a single run, which is exact if there was at most one or if runs
    # have no cool-down.
    one_run_before = len(evidence.history) <= 2 or evidence.mechanism.cool_down == 1
    deleted_now = evidence.steps_present == observed.plan.steps_before and one_run_before
    if observed.plan.notion is guarantees.Notion.RELEASE or deleted_now:
        certified += [(g.mu, g.epsilon) for g in evidence.guarantees() if g.notion is observed.plan.notion]
    for mu, epsilon in certified:
        if stated["mu_lower_bound"] > mu or stated["epsilon_lower_bound"] > epsilon:
            raise errors.PreconditionError(
                "audit_within_guarantee", "Expected the canary test to prove at most the certified guarantee"
            )
    guarantees.confirm("audit", stated=stated, recomputed=observed.to_json(evidence.mechanism, delta=evidence.delta))
    steps_before_run = evidence.steps_before + sum(run.steps for run in evidence.history[:-1])
    if (observed.plan.steps_before, observed.plan.steps) != (steps_before_run, run["steps"]):
        raise errors.PreconditionError(
            "audit_of_run", "Expected the canary test of the run that the statement is about"
        )
    if observed.findings(evidence.mechanism):
        raise errors.PreconditionError("audit_passed", "Expected a canary test without findings")


def _releases_counted(evidence: guarantees.Evidence, own: accountant.Exposure | None) -> bool:
    """Return True if the model's releases include every run made while the person's records were present.

    For runs dropped by `accountant.compact`, the releases must include at least their total number of steps.
    """
    if own is None:
        return evidence.steps_present == 0
    ends = accumulate((run.steps for run in evidence.history), initial=evidence.steps_before)
    next(ends)
    recorded = Counter(
        run.steps for run, end in zip(evidence.history, ends, strict=True) if end <= evidence.steps_present
    )
    dropped_steps = min(evidence.steps_before, evidence.steps_present)
    released: Counter[int] = Counter()
    for steps, times in own.releases:
        released[steps] += times
    return (
        (own.mechanism, own.records) == (evidence.mechanism, evidence.records)
        and recorded <= released
        and dropped_steps <= sum(steps * times for steps, times in (released - recorded).items())
    )


def _stretches_counted(exposure: accountant.Exposure) -> bool:
    """Return True if an exposure has at least as many stretches as `accountant.exposed` counts: one, plus one per run
    as long as the learning run, since such a run may also be a learning run."""
    return exposure.stretches > dict(exposure.releases).get(exposure.mechanism.learn_steps, 0)


def _check_consistent(document: dict[str, Any], evidence: guarantees.Evidence) -> None:
    """Check that all parts of a statement refer to the same run, model, records and target."""
    own = evidence.exposures.get(document["model"]["id"])
    method = methods.of(evidence.mechanism)
    kinds = {"unlearn"} if len(evidence.history) > 1 or evidence.steps_before else {"learn", "relearn"}
    learning_steps = evidence.steps_before or evidence.history[0].steps
    stated = document["target"]
    expected_target = target.target(
        epsilon=stated["epsilon"], delta=stated["delta"], num_slots=evidence.mechanism.num_slots
    ).to_json()
    mu_target = conversion.gdp_mu(epsilon=stated["epsilon"], delta=stated["delta"])
    unlearning = next(g for g in evidence.guarantees() if g.notion is guarantees.Notion.UNLEARNING)
    conditions = {
        "theorem_of_method": document["theorem"] == method.theorem,
        "steps_of_run": document["run"]["steps"] == evidence.history[-1].steps,
        "kind_of_run": document["run"]["kind"] in kinds,
        "learning_as_planned": learning_steps >= evidence.mechanism.learn_steps,
        "records_of_request": document["request"]["records"] == evidence.records,
        "own_releases_counted": _releases_counted(evidence, own),
        "stretches_counted": all(_stretches_counted(exposure) for exposure in evidence.exposures.values()),
        "delta_of_target": evidence.delta == stated["delta"],
        "bounds_of_target": stated == expected_target,
        "target_met": unlearning.mu <= mu_target * (1 + guarantees.TOLERANCE),
    }
    for name, holds in conditions.items():
        if not holds:
            raise errors.PreconditionError(name, f"Expected the statement to satisfy {name}")
