"""Costs of requests: repairs, room before retraining, versions left in a budget, and current signed guarantees.

Three ways to forget are compared: unlearning for each request, unlearning in batches, and retraining.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy.orm import Session

from app.accounting import budgets, certificates, repository, service
from app.db.tables import Certificate, Model, stored_mechanism
from app.unlearning.planner import Plan, PlanReason, after, forget, learn
from lethe.contract.sets import RunKind
from lethe.features.insight import margins
from lethe.proof import accountant, calibration, errors, guarantees, methods


def reset(model: Model, *, at_most: int) -> tuple[int, guarantees.Guarantee] | None:
    """Return the minimum number of steps on the current data after which a model's initial parameters matter no more
    than its target permits, and the resulting guarantee; None if above `at_most`, or if every run is from scratch."""
    mechanism = stored_mechanism(model.mechanism)
    if not methods.of(mechanism).continues:
        return None
    imported = accountant.imported(mechanism)
    try:
        steps = calibration.least_steps(imported, records=0, epsilon=model.epsilon, delta=model.delta, at_most=at_most)
    except errors.InfeasibleError:
        return None
    mu = accountant.reset_mu(imported.mechanism, steps=steps)
    return steps, guarantees.guarantee(guarantees.Notion.RESET, mu=mu, delta=model.delta)


def epsilon_without_steps(chain: accountant.Chain, *, records: int, delta: float) -> float:
    """Return the `unlearning` epsilon that would result if `records` more records were nulled without any step."""
    return margins.least_epsilon(chain, records=records, steps=0, delta=delta)


def releases_left(
    session: Session, model: Model, *, records: int, steps: int, epsilon: float, delta: float
) -> int | None:
    """Return how many more versions, each from a run of `steps` steps, fit a remaining person's `adaptive` budget.

    The person's `records` are in every version of all the dataset's models. None if the budget is already exceeded.
    """
    exposed = list(budgets.exposures(session, dataset_id=model.dataset_id, records=records).values())
    mechanism = stored_mechanism(model.mechanism)
    try:
        return margins.releases_left(exposed, mechanism, records=records, steps=steps, epsilon=epsilon, delta=delta)
    except errors.InfeasibleError:
        return None


def room(chain: accountant.Chain, *, epsilon: float, delta: float) -> int:
    """Return the maximum number of records that can be unlearned together at less cost than relearning (0 if none)."""
    fewer = chain.mechanism.learn_steps - 1
    if fewer == 0 or not methods.of(chain.mechanism).continues:
        return 0
    try:
        return margins.most_records(chain, steps=fewer, epsilon=epsilon, delta=delta)
    except errors.InfeasibleError:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateStatement:
    """Signed guarantees for one request and one model, and the current guarantees of the model's live version."""

    certificate: Certificate
    signed: list[guarantees.Guarantee]
    today: list[guarantees.Guarantee]


def statements_of(session: Session, *, request_id: str) -> list[CertificateStatement]:
    """Return one statement for each of a request's certified models. Later runs change the current guarantees:
    `deletion` can only decrease, while `unlearning` also counts people deleted later."""
    erasures = {erasure.dataset_id: erasure for erasure in repository.erasures_of(session, request_id=request_id)}
    certified = []
    for certificate in repository.certificates_of(session, request_id=request_id):
        model = session.get_one(Model, certificate.model_id)
        evidence = service.evidence_of(session, model, erasures[model.dataset_id])
        now = service.standing(session, model).guarantees
        today = [next((g for g in now if g.notion == mine.notion), mine) for mine in evidence.guarantees()]
        signed = certificates.evidence_in(certificate.jws)
        certified.append(CertificateStatement(certificate=certificate, signed=signed.guarantees(), today=today))
    return certified


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSchedule:
    """Plan of successive batches: the number of `runs`, how many of them are `relearned` from scratch, their total
    `steps`, the steps of the `longest` run, and the `chain` after the last run."""

    runs: int
    relearned: int
    steps: int
    longest: int
    chain: accountant.Chain


def in_batches(chain: accountant.Chain, *, records: int, batch: int, epsilon: float, delta: float) -> BatchSchedule:
    """Plan to forget `records` records in batches of `batch`, each reaching the target before the next begins."""
    runs = relearned = steps = longest = 0
    for remaining in range(records, 0, -batch):
        forgotten = min(batch, remaining)
        plan = forget(chain, records=forgotten, epsilon=epsilon, delta=delta)
        chain = after(chain, plan, records=forgotten)
        runs, steps, longest = runs + 1, steps + plan.steps, max(longest, plan.steps)
        relearned += plan.kind == RunKind.RELEARN
    return BatchSchedule(runs=runs, relearned=relearned, steps=steps, longest=longest, chain=chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Option for forgetting: the `steps` of the run, the average `steps_per_request` if all expected requests are
    handled this way, and the `unlearning` epsilon after the run."""

    kind: Literal["unlearn", "batch", "relearn"]
    steps: int
    steps_per_request: float
    epsilon: float
    reason: PlanReason
    facts: Mapping[str, int]


def options(
    chain: accountant.Chain, *, records: int, epsilon: float, delta: float, expected_requests: int
) -> list[Option]:
    """Return the ways to forget `records` records if `expected_requests` more requests of this size follow, cheapest
    per request first: unlearn at each request, serve all requests in one batch, or relearn at each request. Unlearning
    is omitted if it is no cheaper than relearning."""
    requests = 1 + expected_requests

    def option(
        kind: Literal["unlearn", "batch", "relearn"], plan: Plan, batch: int, all_steps: int, reason: PlanReason
    ) -> Option:
        reached = after(chain, plan, records=batch)
        return Option(
            kind=kind,
            steps=plan.steps,
            steps_per_request=all_steps / requests,
            epsilon=margins.least_epsilon(reached, records=0, steps=0, delta=delta),
            reason=reason,
            facts={"requests": requests, "steps": all_steps},
        )

    single = forget(chain, records=records, epsilon=epsilon, delta=delta)
    batch = forget(chain, records=requests * records, epsilon=epsilon, delta=delta)
    relearning = learn(chain.mechanism, kind=RunKind.RELEARN)
    ways = [
        option("batch", batch, requests * records, batch.steps, PlanReason.ONE_BATCH),
        option("relearn", relearning, records, requests * relearning.steps, PlanReason.NO_INFLUENCE),
    ]
    if single.kind == RunKind.UNLEARN:
        one_by_one = in_batches(chain, records=requests * records, batch=records, epsilon=epsilon, delta=delta)
        ways.insert(0, option("unlearn", single, records, one_by_one.steps, PlanReason.ONE_BY_ONE))
    return sorted(ways, key=lambda way: way.steps_per_request)
