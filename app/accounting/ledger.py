"""The ledger: one entry per published version, each naming what ran and hashing its predecessor.

An entry's numbers follow from those before it: `lethe.verification.ledgers` recomputes them from the bodies alone.
Each model's entries are a chain; one more chain, whose head is signed, has the entries of all models of a tenant in the
order in which they came, so that neither the last entry nor a whole model goes without a trace.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.accounting import repository
from app.audit import repository as chain_repository
from app.audit.chains import LEDGER
from app.db import now
from app.db.tables import LedgerEntry, LedgerLink, Model, Run, Version
from lethe.proof import accountant, guarantees
from lethe.proof.accountant import Chain
from lethe.proof.mechanism import Mechanism
from lethe.verification.chains import GENESIS, canonical, link_hash
from lethe.verification.ledgers import FORMAT, LINK_FORMAT, chain_numbers


def post(
    session: Session, *, model: Model, run: Run, version: Version, chain: Chain, requests: list[dict[str, Any]]
) -> LedgerEntry:
    """Append the entry of a version that is being published, in the same transaction.

    `chain` is where the accountant stands after `run`; `requests` names the deletion requests it served.
    """
    last = repository.last_entry(session, model_id=model.id)
    ran = accountant.Run(steps=run.steps_total, records=run.records)
    body = canonical(
        {
            "format": FORMAT,
            "model_id": model.id,
            "sequence": last.sequence + 1 if last else 1,
            "kind": run.kind,
            "version": version.number,
            "run_id": run.id,
            "dataset_id": run.dataset_id,
            "revision": run.revision,
            "mechanism": chain.mechanism.to_json(),
            "first_step": chain.steps - run.steps_total,
            "steps": run.steps_total,
            "records": run.records,
            "requests": requests,
            "weights_sha256": version.weights_sha256,
            "chain": chain_numbers(chain),
            "guarantees": [g.to_json() for g in guarantees.of_chain(chain, last_run=ran, delta=model.delta)],
            "theorem": accountant.THEOREM,
            "recorded_at": now(session).isoformat(),
        }
    )
    previous = last.hash if last else GENESIS
    entry = LedgerEntry(
        model_id=model.id,
        sequence=last.sequence + 1 if last else 1,
        body=body,
        previous_hash=previous,
        hash=link_hash(previous, body),
    )
    session.add(entry)
    link(session, tenant_id=model.tenant_id, kind="entry", model_id=model.id, entry=entry.sequence, hash=entry.hash)
    return entry


def link(session: Session, *, tenant_id: str, kind: str, **said: Any) -> LedgerLink:
    """Say in the chain of a tenant, which is over all its models, what comes next: an entry of a model, or that the
    installation was restored from a backup."""
    last = chain_repository.last_row(session, LEDGER, tenant_id=tenant_id)
    sequence, previous = (last.sequence + 1, last.hash) if last else (1, GENESIS)
    place = {"format": LINK_FORMAT, "tenant_id": tenant_id, "sequence": sequence, "kind": kind}
    body = canonical(place | said)
    linked = LedgerLink(
        tenant_id=tenant_id, sequence=sequence, body=body, previous_hash=previous, hash=link_hash(previous, body)
    )
    session.add(linked)
    return linked


def format_of(entry: LedgerEntry) -> str | None:
    """The format that an entry states."""
    said = json.loads(entry.body)
    return said.get("format") if isinstance(said, dict) else None


def epsilon_of(entry: LedgerEntry) -> float:
    """The `unlearning` epsilon of the version that an entry is of; infinite where its format does not say."""
    said = json.loads(entry.body).get("guarantees", [])
    return next((one["epsilon"] for one in said if one["notion"] == guarantees.Notion.UNLEARNING), math.inf)


def goes_on(session: Session, *, model_id: str) -> bool:
    """Return True if a run can continue the model's present chain: entries of an earlier format have none that goes
    on."""
    last = repository.last_entry(session, model_id=model_id)
    return last is None or format_of(last) == FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The published runs of a model's present chain, oldest first, after its first `steps_before` steps: of these too
    long ago has passed for them to count (`accountant.compact`)."""

    mechanism: Mechanism
    steps_before: int
    runs: tuple[accountant.Run, ...]

    @property
    def chain(self) -> Chain:
        """The model's chain at its live version."""
        return accountant.replay(self.mechanism, self.runs, steps_before=self.steps_before)


def history_of(session: Session, *, model_id: str, mechanism: Mechanism) -> History:
    """Read the part of a model's present chain that counts; it takes as long however old the model is."""
    read: list[repository.Ran] = []

    def newest_first() -> Iterator[tuple[int, accountant.Run]]:
        for ran in repository.chain_backwards(session, model_id=model_id):
            read.append(ran)
            yield ran.number, accountant.Run(steps=ran.steps, records=ran.records)

    runs = tuple(accountant.recent(mechanism, newest_first()))
    steps_before = read[len(runs) - 1].first_step if runs else 0
    return History(mechanism=mechanism, steps_before=steps_before, runs=runs)
