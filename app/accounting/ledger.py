"""The ledger: one entry per published version, each naming what ran and hashing its predecessor.

An entry's numbers follow from the entries before it: `app/accounting/verify.py` recomputes them from the bodies alone.
"""

import hashlib
import json
from typing import Any

from sqlalchemy.orm import Session

from app.accounting import repository
from app.db import now
from app.db.tables import LedgerEntry, Model, Run, Version
from app.privacy import accountant, guarantees
from app.privacy.accountant import Chain
from app.privacy.mechanism import Mechanism

GENESIS = "0" * 64
"""What the first entry of a model hashes as its predecessor."""


def post(
    session: Session, *, model: Model, run: Run, version: Version, chain: Chain, requests: list[dict[str, Any]]
) -> LedgerEntry:
    """Append the entry of a version that is being published, in the same transaction.

    `chain` is where the accountant stands after `run`; `requests` names the deletion requests it served.
    """
    last = repository.last_entry(session, model_id=model.id)
    body = canonical(
        {
            "format": "lethe-ledger/1",
            "model_id": model.id,
            "sequence": last.sequence + 1 if last else 1,
            "kind": run.kind,
            "version": version.number,
            "run_id": run.id,
            "dataset_id": run.dataset_id,
            "revision": run.revision,
            "mechanism": chain.mechanism.to_json(),
            "steps": run.steps_total,
            "records": run.records,
            "requests": requests,
            "weights_sha256": version.weights_sha256,
            "chain": chain_numbers(chain),
            "guarantees": [g.to_json() for g in guarantees.of_chain(chain, last_run=accounted(run), delta=model.delta)],
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
        hash=entry_hash(previous, body),
    )
    session.add(entry)
    return entry


def chain_of(session: Session, *, model_id: str, mechanism: Mechanism) -> Chain:
    """Where the model's chain stands at its live version."""
    return accountant.replay(mechanism, history_of(session, model_id=model_id))


def history_of(session: Session, *, model_id: str) -> list[accountant.Run]:
    """The published runs of the present chain, learning first."""
    return [accounted(run) for run in repository.chain_runs(session, model_id=model_id)]


def accounted(run: Run) -> accountant.Run:
    """What counts of a run."""
    return accountant.Run(steps=run.steps_total, records=run.records)


def chain_numbers(chain: Chain) -> dict[str, float]:
    return {
        "steps": chain.steps,
        "variance": chain.variance,
        "presence": chain.presence,
        "influence": chain.influence,
    }


def canonical(document: dict[str, Any]) -> str:
    """JSON with sorted keys and no spaces, NaN refused: the same bytes for the same facts."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def entry_hash(previous_hash: str, body: str) -> str:
    return hashlib.sha256(f"{previous_hash}\n{body}".encode()).hexdigest()
