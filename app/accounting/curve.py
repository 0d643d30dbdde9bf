"""A model's life step by step, read from the ledger: learning, every deletion, every version it released."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.accounting import budgets, ledger, repository
from app.db.mechanisms import stored_mechanism
from app.db.tables import Dataset, LedgerEntry, Model
from lethe.contract.sets import RunKind
from lethe.proof import accountant, curve, guarantees
from lethe.proof.accountant import Chain, Exposure, Run
from lethe.proof.budget import Adaptive
from lethe.proof.curve import Point
from lethe.proof.guarantees import Guarantee
from lethe.proof.mechanism import Mechanism
from lethe.verification.ledgers import FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The steps behind one ledger entry.

    `steps_before`: steps of the model's whole life until then. `largest`: most records of one person among those whom
    it forgot, None if nobody. `adaptive`: of that person, fixed when they were deleted: everything published while
    they were there. `exports`: how often the version's weights were handed out.
    """

    entry: dict[str, Any]
    steps_before: int
    largest: int | None
    adaptive: Guarantee | None
    exports: int
    points: tuple[Point, ...]


def segments(
    session: Session, model: Model, *, points: int, limit: int, before: int | None = None
) -> tuple[list[Segment], int | None]:
    """The last `limit` segments before the entry `before`, newest first, and where the next page begins, if any. It
    reaches back to the first entry of the present format.

    Nothing but the ledger goes into the numbers.
    """
    found = repository.entries_backwards(session, model_id=model.id, before=before, limit=limit + 1)
    found = [entry for entry in found if ledger.format_of(entry) == FORMAT]
    shown = [_body(entry) for entry in found[:limit]]
    chain = _chain_before(session, shown[-1]) if shown else None
    steps = repository.steps_until(session, model_id=model.id, number=shown[-1]["version"]) if shown else 0
    exports = repository.count_exports(session, model_id=model.id)
    releases = _Releases(session, model)
    made: list[Segment] = []
    for body in reversed(shown):
        mechanism, run = Mechanism.from_json(body["mechanism"]), Run(steps=body["steps"], records=body["records"])
        if chain is None or body["kind"] != RunKind.UNLEARN:
            chain = accountant.started(mechanism)
        largest = max((request["records"] for request in body["requests"]), default=None)
        delta = body["guarantees"][0]["delta"]
        made.append(
            Segment(
                entry=body,
                steps_before=steps,
                largest=largest,
                adaptive=releases.to_forgotten(body, records=largest, delta=delta) if largest else None,
                exports=exports.get(body["version"], 0),
                points=curve.points(
                    chain,
                    run,
                    largest=largest,
                    exposures=releases.to_present(body),
                    delta=delta,
                    at_most=points,
                ),
            )
        )
        steps += run.steps
        chain = accountant.advance(chain, run)
    return made[::-1], shown[-1]["sequence"] if len(found) > limit else None


class _Releases:
    """The versions published of all models of a dataset, to whom they were exposed: read once."""

    def __init__(self, session: Session, model: Model) -> None:
        self._models = [
            (fed.id, stored_mechanism(fed.mechanism), repository.releases(session, model_id=fed.id))
            for fed in repository.models_of(session, dataset_id=model.dataset_id)
        ]
        self._budget = budgets.of(session.get_one(Dataset, model.dataset_id))
        for lost, mechanism, taken in repository.lost_models(session, dataset_id=model.dataset_id):
            self._models.append((lost, mechanism, [(0, -1, steps) for steps in taken]))

    def to_forgotten(self, body: dict[str, Any], *, records: int, delta: float) -> Guarantee:
        """The guarantee to a person whose `records` became null before this entry: as `certificates.Evidences` counts
        them."""
        exposures = self._exposures(
            [[one for one in made if one[1] < body["revision"]] for _, _, made in self._models],
            records=records,
        )
        if self._budget:
            return guarantees.adaptive(Adaptive(mu=records * self._budget.mu, bounded=True), delta=delta)
        return guarantees.adaptive(Adaptive(mu=accountant.adaptive_mu(exposures), bounded=False), delta=delta)

    def to_present(self, body: dict[str, Any]) -> tuple[Exposure, ...]:
        """To one record that is still there: this model's versions before this one, and those of the other models on
        data of this revision or an earlier one, which is when a person deleted next is still in them."""
        return self._exposures(
            [
                [
                    (number, revision, steps)
                    for number, revision, steps in made
                    if (number < body["version"] if model_id == body["model_id"] else revision <= body["revision"])
                ]
                for model_id, _, made in self._models
            ],
            records=1,
        )

    def _exposures(self, taken: list[list[tuple[int, int, int]]], *, records: int) -> tuple[Exposure, ...]:
        return tuple(
            accountant.exposed(
                mechanism,
                Counter(steps for _, _, steps in of_model),
                records=records,
                lost=sum(revision < 0 for _, revision, _ in of_model),
            )
            for (_, mechanism, _), of_model in zip(self._models, taken, strict=True)
            if of_model
        )


def _body(entry: LedgerEntry) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(entry.body)
    return body


def _chain_before(session: Session, body: dict[str, Any]) -> Chain | None:
    """The chain that an entry continues, before it; None if it began one."""
    if body["kind"] != RunKind.UNLEARN:
        return None
    mechanism = Mechanism.from_json(body["mechanism"])
    runs = [Run(steps=earlier["steps"], records=earlier["records"]) for earlier in _of_chain_before(session, body)]
    return accountant.replay_recent(mechanism, runs[::-1])


def _of_chain_before(session: Session, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries of the same chain before this one, newest first."""
    while found := repository.entries_backwards(
        session, model_id=body["model_id"], before=body["sequence"], limit=_AT_ONCE
    ):
        for body in map(_body, found):
            yield body
            if body["kind"] != RunKind.UNLEARN:
                return


_AT_ONCE = 100
