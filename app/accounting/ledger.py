"""Ledger: one entry per published version, stating its run and the hash of the previous entry.

An entry's numbers follow from the previous entries: `lethe.verification.ledgers` recomputes them from the entries'
bodies alone. A model's entries form a hash chain. A second chain per tenant, whose head is signed, links the entries of
all models in order, so that neither the last entry nor a whole model can be removed unnoticed.
"""

import datetime
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app.accounting import repository
from app.audit import checkpoints, repository as chains
from app.db import bulk, tables
from lethe.proof import accountant, guarantees, methods
from lethe.proof.mechanism import Mechanism
from lethe.verification import ledgers
from lethe.verification.chains import GENESIS, SignedHead, canonical, link_hash


def post(
    session: Session,
    *,
    model: tables.Model,
    run: tables.Run,
    version: tables.Version,
    chain: accountant.Chain,
    requests: list[dict[str, Any]],
    at: datetime.datetime,
) -> tables.LedgerEntry:
    """Append a version's ledger entry, in the transaction that publishes the version at `at`.

    `chain` is the accountant's state after `run`; `requests` lists the deletion requests that the run served.
    """
    last = repository.last_entry(session, model_id=model.id)
    last_run = accountant.Run(steps=run.steps_total, records=run.records)
    body = canonical(
        {
            "format": ledgers.FORMAT,
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
            "chain": ledgers.chain_numbers(chain),
            "guarantees": [g.to_json() for g in guarantees.of_chain(chain, last_run=last_run, delta=model.delta)],
            "theorem": methods.of(chain.mechanism).theorem,
            "recorded_at": at.isoformat(),
        }
    )
    previous = last.hash if last else GENESIS
    entry = tables.LedgerEntry(
        model_id=model.id,
        sequence=last.sequence + 1 if last else 1,
        body=body,
        previous_hash=previous,
        hash=link_hash(previous, body),
    )
    bulk.store(session, tables.LedgerEntry, [entry])
    link(session, tenant_id=model.tenant_id, kind="entry", model_id=model.id, entry=entry.sequence, hash=entry.hash)
    return entry


def link(session: Session, *, tenant_id: str, kind: str, **fields: Any) -> tables.LedgerLink:
    """Append a link to the tenant's chain over all models: a model's ledger entry or a restoration from a backup.

    The keywords in `fields` become fields of the link.
    """
    last = chains.last_row(session, checkpoints.LEDGER, tenant_id=tenant_id)
    sequence, previous = (last.sequence + 1, last.hash) if last else (1, GENESIS)
    place = {"format": ledgers.LINK_FORMAT, "tenant_id": tenant_id, "sequence": sequence, "kind": kind}
    body = canonical(place | fields)
    linked = tables.LedgerLink(
        tenant_id=tenant_id, sequence=sequence, body=body, previous_hash=previous, hash=link_hash(previous, body)
    )
    bulk.store(session, tables.LedgerLink, [linked])
    return linked


def epsilon_of(entry: tables.LedgerEntry) -> float:
    """Return the `unlearning` epsilon of the version that an entry accounts for."""
    stated = json.loads(entry.body)["guarantees"]
    return next(float(item["epsilon"]) for item in stated if item["notion"] == guarantees.Notion.UNLEARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Part of a model's current chain that affects the guarantees: its published `runs`, oldest first, after
    `steps_before` older steps (`accountant.compact`). `published` lists the latest published runs, newest first."""

    mechanism: Mechanism
    steps_before: int
    runs: tuple[accountant.Run, ...]
    published: tuple[repository.PublishedRun, ...]

    @property
    def chain(self) -> accountant.Chain:
        """State of the model's chain at its live version."""
        return methods.replay(self.mechanism, self.runs, steps_before=self.steps_before)


def history_of(session: Session, *, model_id: str, mechanism: Mechanism) -> History:
    """Read the part of a model's current chain that affects the guarantees, in time independent of the model's age."""
    read: list[repository.PublishedRun] = []

    def newest_first() -> Iterator[tuple[int, accountant.Run]]:
        for run in repository.chain_backwards(session, model_id=model_id):
            read.append(run)
            yield run.number, accountant.Run(steps=run.steps, records=run.records)

    runs = tuple(methods.of(mechanism).recent(mechanism, newest_first()))
    steps_before = read[len(runs) - 1].first_step if runs else 0
    return History(mechanism=mechanism, steps_before=steps_before, runs=runs, published=tuple(read))


def verify_tenant(
    session: Session, public_keys: KeySet, *, tenant_id: str, heads: Sequence[SignedHead] = ()
) -> ledgers.OfTenant:
    """Verify a tenant's ledger in the database, and compare it with signed `heads` that are stored elsewhere."""
    verified = ledgers.verify_tenant(
        tenant_id,
        entries=repository.entries_of_tenant(session, tenant_id=tenant_id),
        versions=repository.versions_of_tenant(session, tenant_id=tenant_id),
        links=chains.rows_of(session, checkpoints.LEDGER, tenant_id=tenant_id),
        signed=chains.all_checkpoints(session, checkpoints.LEDGER, tenant_id=tenant_id),
        certificates=repository.certificates_of_tenant(session, tenant_id=tenant_id),
        public_keys=public_keys,
    )
    for signed_head in heads:
        if signed_head.tenant_id == tenant_id:
            ledgers.require_kept(verified, signed_head, public_keys)
    return verified
