"""A model's curve: influence and epsilon after each step since its creation, computed from the ledger alone."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.accounting import budgets, repository
from app.db.tables import Dataset, LedgerEntry, Model, stored_mechanism
from app.features.insight import repository as insight_repository
from app.features.lineage import repository as lineage_repository
from lethe.contract.sets import RunKind
from lethe.features.insight import curve
from lethe.proof import accountant, budget, conversion, guarantees, methods
from lethe.proof.accountant import Chain, Exposure, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Steps recorded by one ledger entry.

    `steps_before`: number of earlier steps in the model's life. `largest`: maximum number of records of any one person
    forgotten by the run; None if the run forgot no one. `adaptive`: guarantee to that person over all versions
    published while their records were in the data. `exports`: number of times the version's weights were exported.
    """

    entry: dict[str, Any]
    steps_before: int
    largest: int | None
    adaptive: guarantees.Guarantee | None
    exports: int
    points: tuple[curve.Point, ...]


def segments(
    session: Session, model: Model, *, points: int, limit: int, before: int | None = None
) -> tuple[list[Segment], int | None]:
    """Return the last `limit` segments before entry `before`, newest first, and the next page's `before`.

    If `before` is None, the page begins at the end of the ledger. If there is no next page, its `before` is None.
    """
    entries = insight_repository.entries_backwards(session, model_id=model.id, before=before, limit=limit + 1)
    bodies = [_body(entry) for entry in entries[:limit]]
    chain = _chain_before(session, bodies[-1]) if bodies else None
    steps = insight_repository.steps_until(session, model_id=model.id, number=bodies[-1]["version"]) if bodies else 0
    exports = lineage_repository.export_counts(session, model.id)
    releases = _Releases(session, model)
    segments: list[Segment] = []
    for body in reversed(bodies):
        mechanism, run = methods.read(body["mechanism"]), Run(steps=body["steps"], records=body["records"])
        if chain is None or body["kind"] != RunKind.UNLEARN:
            chain = methods.of(mechanism).started(mechanism)
        largest = max((request["records"] for request in body["requests"]), default=None)
        delta = body["guarantees"][0]["delta"]
        segments.append(
            Segment(
                entry=body,
                steps_before=steps,
                largest=largest,
                adaptive=releases.to_forgotten(body, records=largest, delta=delta) if largest else None,
                exports=exports.get(body["version"], 0),
                points=_points(chain, run, largest, releases.to_present(body), delta=delta, at_most=points),
            )
        )
        steps += run.steps
        chain = methods.of(mechanism).advance(chain, run)
    return segments[::-1], bodies[-1]["sequence"] if len(entries) > limit else None


def _points(
    before: Chain, run: Run, largest: int | None, exposures: tuple[Exposure, ...], *, delta: float, at_most: int
) -> tuple[curve.Point, ...]:
    """Return the points of a run's curve, or only its two ends if the method retrains for each version."""
    method = methods.of(before.mechanism)
    if method.continues:
        return curve.points(before, run, largest=largest, exposures=exposures, delta=delta, at_most=at_most)
    chain = method.advance(before, run)
    unlearning, release = guarantees.of_chain(chain, last_run=run, delta=delta)
    released = (*exposures, Exposure(mechanism=chain.mechanism, records=1, releases=((run.steps, 1),)))
    earlier, later = (
        guarantees.adaptive(
            budget.Adaptive(mu=methods.adaptive_mu(summed), bounded=False, summed=summed), delta=delta
        ).epsilon
        for summed in (exposures, released)
    )
    forgotten = None if largest is None else unlearning.epsilon
    nothing = curve.Epsilons(unlearning=0.0, deletion=None if largest is None else 0.0, adaptive=earlier, release=0.0)
    epsilons = curve.Epsilons(
        unlearning=unlearning.epsilon, deletion=forgotten, adaptive=later, release=release.epsilon
    )
    mu = method.deletion_mu(chain, records=1, steps_present=chain.steps)
    of_one = conversion.gdp_epsilon(mu=mu, delta=delta)
    return tuple(
        curve.Point(
            step=state.steps,
            influence=state.influence,
            presence=state.presence,
            noise_variance=state.variance,
            epsilon=epsilon,
            epsilon_of_one=epsilon_of_one,
        )
        for state, epsilon, epsilon_of_one in ((before, nothing, 0.0), (chain, epsilons, of_one))
    )


class _Releases:
    """Published versions of all of a dataset's models, for counting exposures. They are read once per page."""

    def __init__(self, session: Session, model: Model) -> None:
        self._models = [
            (row.id, stored_mechanism(row.mechanism), insight_repository.releases(session, model_id=row.id))
            for row in repository.models_of(session, dataset_id=model.dataset_id)
        ]
        self._budget = budgets.of(session.get_one(Dataset, model.dataset_id))
        for model_id, mechanism, steps in repository.lost_models(session, dataset_id=model.dataset_id):
            self._models.append((model_id, mechanism, [(0, -1, count) for count in steps]))

    def to_forgotten(self, body: dict[str, Any], *, records: int, delta: float) -> guarantees.Guarantee:
        """Return the guarantee to a person whose `records` records were nulled before a ledger entry.

        Exposures are counted as in `certificates.Evidences`.
        """
        if self._budget:
            return guarantees.adaptive(budget.Adaptive(mu=records * self._budget.mu, bounded=True), delta=delta)
        before = [[release for release in releases if release[1] < body["revision"]] for _, _, releases in self._models]
        exposures = self._exposures(before, records=records)
        bound = budget.Adaptive(mu=methods.adaptive_mu(exposures), bounded=False, summed=exposures)
        return guarantees.adaptive(bound, delta=delta)

    def to_present(self, body: dict[str, Any]) -> tuple[Exposure, ...]:
        """Return the exposures of a record that is still in the data at a ledger entry.

        They are this model's earlier versions, and the other models' versions trained on this revision of the data or
        an earlier one: the versions that include a person who is deleted next.
        """
        return self._exposures(
            [
                [
                    (number, revision, steps)
                    for number, revision, steps in releases
                    if (number < body["version"] if model_id == body["model_id"] else revision <= body["revision"])
                ]
                for model_id, _, releases in self._models
            ],
            records=1,
        )

    def _exposures(self, releases: list[list[tuple[int, int, int]]], *, records: int) -> tuple[Exposure, ...]:
        return tuple(
            accountant.exposed(
                mechanism,
                Counter(steps for _, _, steps in releases_of_model),
                records=records,
                lost=sum(revision < 0 for _, revision, _ in releases_of_model),
            )
            for (_, mechanism, _), releases_of_model in zip(self._models, releases, strict=True)
            if releases_of_model
        )


def _body(entry: LedgerEntry) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(entry.body)
    return body


def _chain_before(session: Session, body: dict[str, Any]) -> Chain | None:
    """Return the chain that an entry continues, in its state before the entry; None if the entry began a chain."""
    if body["kind"] != RunKind.UNLEARN:
        return None
    mechanism = methods.read(body["mechanism"])
    runs = [Run(steps=earlier["steps"], records=earlier["records"]) for earlier in _earlier_in_chain(session, body)]
    steps_before, recent = accountant.compact(mechanism, runs[::-1])
    return accountant.replay(mechanism, recent, steps_before=steps_before)


def _earlier_in_chain(session: Session, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the entries that precede an entry in its chain, newest first."""
    while entries := insight_repository.entries_backwards(
        session, model_id=body["model_id"], before=body["sequence"], limit=_AT_ONCE
    ):
        for body in map(_body, entries):
            yield body
            if body["kind"] != RunKind.UNLEARN:
                return


_AT_ONCE = 100
