"""Certificates: statements signed with the installation's Ed25519 key, which `lethe.verification` verifies."""

import datetime
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from sqlalchemy.orm import Session

from app import signing
from app.accounting import budgets, ledger, repository
from app.db import tables
from app.keys import Keys
from lethe.contract import problems, sets
from lethe.proof import absence, accountant, canary_test, certificate as statements, guarantees
from lethe.proof.budget import Budgeted
from lethe.proof.mechanism import Mechanism
from lethe.verification.certificates import TYPE, signed_payload
from lethe.verification.chains import canonical


def to_sign(
    keys: Keys,
    at: datetime.datetime,
    *,
    request: tables.DeletionRequest,
    erasure: tables.Erasure,
    model: tables.Model,
    dataset: tables.Dataset,
    run: tables.Run,
    version: tables.Version,
    entry: tables.LedgerEntry,
    evidence: guarantees.Evidence,
    observed: canary_test.Observed | None,
) -> signing.Wanted:
    """Return the facts stated in the certificate for one request and one model version, and the function that creates
    the certificate (`SignedAhead`)."""
    facts: dict[str, Any] = {
        "request": {"id": request.id, "submitted_at": request.submitted_at.isoformat(), "records": erasure.num_records},
        "model": {"id": model.id, "version": version.number, "weights_sha256": version.weights_sha256},
        "dataset": {"id": dataset.id, "revision": run.revision, "digest": dataset.digest},
        "run": {"id": run.id, "kind": run.kind, "steps": run.steps_total},
        "epsilon": model.epsilon,
        "ledger": {"sequence": entry.sequence, "hash": entry.hash},
        "evidence": evidence,
        "observed": observed,
    }
    # The transaction is rolled back before its facts are signed, which expires its objects.
    columns: dict[str, Any] = {
        "tenant_id": request.tenant_id,
        "request_id": request.id,
        "model_id": model.id,
        "version": version.number,
    }

    def certificate() -> tables.Certificate:
        certificate_id = tables.new_id("crt")
        statement = statements.statement(certificate_id=certificate_id, issued_at=at.isoformat(), **facts)
        return tables.Certificate(id=certificate_id, jws=sign(keys, statement), issued_at=at, **columns)

    return facts, certificate


class Evidences:
    """Evidence about one model, based on the current state of its chain, which is read once for many requests."""

    def __init__(
        self, session: Session, model: tables.Model, history: ledger.History, *, request_ids: Sequence[str]
    ) -> None:
        self._session = session
        self._model = model
        self._history = history
        self._datasets: dict[str, tables.Dataset] = {}
        self._erasures: dict[str, list[tuple[tables.Erasure, int, int]]] = {}
        for erasure, dataset, records in repository.erasures_with_rows(session, request_ids=request_ids):
            # An unclaimed erasure counts as if claimed now.
            revision = dataset.revision + 1 if erasure.revision is None else erasure.revision
            self._erasures.setdefault(erasure.request_id, []).append((erasure, revision, records))
            self._datasets[dataset.id] = dataset
        self._steps_present: dict[int, int] = {}
        self._releases: dict[tuple[str, int], list[tuple[str, Mechanism, Counter[int], int]]] = {}

    def of(self, erasure: tables.Erasure) -> guarantees.Evidence:
        """Return the evidence for the guarantees about an erasure, leaving out history that is too old to affect them.

        Raises `PrivacyError` if parts of the evidence contradict each other.
        """
        revision, records = next(
            numbers for other, *numbers in self._erasures[erasure.request_id] if other.id == erasure.id
        )
        exposures, dataset_budgets = self._exposures(erasure.request_id)
        return guarantees.Evidence(
            mechanism=self._history.mechanism,
            steps_before=self._history.steps_before,
            history=self._history.runs,
            records=records,
            steps_present=self._steps_before(revision),
            exposures=exposures,
            budgets=dataset_budgets,
            delta=self._model.delta,
        )

    def _steps_before(self, revision: int) -> int:
        """Return the number of chain steps before dataset revision `revision`; 0 if the chain began later."""
        if revision not in self._steps_present:
            backwards = repository.chain_backwards(self._session, model_id=self._model.id)
            runs = itertools.chain(self._history.published, backwards)
            steps = (run.first_step + run.steps for run in runs if run.revision < revision)
            self._steps_present[revision] = next(steps, 0)
        return self._steps_present[revision]

    def _exposures(self, request_id: str) -> tuple[dict[str, accountant.Exposure], dict[str, Budgeted]]:
        """Return the exposure to each model trained on the request's records, and each dataset's budget.

        An exposure counts the versions published while the records were present, or all versions if they still are.
        """
        exposures, dataset_budgets = {}, {}
        for erasure, revision, records in self._erasures[request_id]:
            released = self._released(erasure.dataset_id, revision) if records else []
            for model_id, mechanism, steps, lost in released:
                exposures[model_id] = accountant.exposed(mechanism, steps, records=records, lost=lost)
            budget = budgets.of(self._datasets[erasure.dataset_id])
            if budget and released:
                models = tuple(model_id for model_id, *_ in released)
                dataset_budgets[erasure.dataset_id] = Budgeted(budget=budget, models=models)
        return exposures, dataset_budgets

    def _released(self, dataset_id: str, revision: int) -> list[tuple[str, Mechanism, Counter[int], int]]:
        """Return one tuple for each of a dataset's models with versions that were lost or published before `revision`:
        model id, mechanism, counts of these versions keyed by the steps of their runs, and number of lost versions."""
        if (dataset_id, revision) not in self._releases:
            releases = repository.releases_before(self._session, dataset_id=dataset_id, revision=revision)
            released = [
                (model.id, tables.stored_mechanism(model.mechanism), counts, len(model.lost_releases))
                for model, counts in releases
            ]
            for model_id, mechanism, steps in repository.lost_models(self._session, dataset_id=dataset_id):
                released.append((model_id, mechanism, Counter(steps), len(steps)))
            self._releases[dataset_id, revision] = [model for model in released if model[2]]
        return self._releases[dataset_id, revision]


def get(session: Session, keys: Keys, certificate_id: str) -> tables.Certificate:
    """Return a certificate. Raises `CertificateUnknown`, and `CertificateDamaged` if it has been altered."""
    row = repository.certificate(session, certificate_id)
    certificate = problems.CertificateUnknown.if_none(row, certificate_id=certificate_id)
    require_whole(damaged(keys, [certificate]))
    return certificate


def damaged(keys: Keys, certificates: Iterable[tables.Certificate]) -> list[str]:
    """Return the ids of those stored certificates that differ from what was signed."""
    published = signing.published(keys)
    return [stored.id for stored in certificates if signed_payload(stored.jws, published, kind=TYPE) is None]


def require_whole(damaged_ids: Sequence[str]) -> None:
    """Raise `CertificateDamaged`, naming the first id, if any certificates are damaged."""
    if damaged_ids:
        raise problems.CertificateDamaged(certificate_id=damaged_ids[0])


def sign(keys: Keys, statement: dict[str, Any]) -> str:
    """Sign a statement and return it as a compact JWS (RFC 7515, RFC 9864). Raises `SignatureUnverifiable`."""
    return signing.sign(keys, canonical(statement).encode(), kind=TYPE)


def public_keys(keys: Keys) -> dict[str, Any]:
    """Return the JWK set that `/.well-known/jwks.json` publishes."""
    return signing.public_keys(keys)


def statement_in(compact_jws: str) -> dict[str, Any]:
    """Return the statement in a certificate issued by this installation, without verifying the signature."""
    document: dict[str, Any] = json.loads(jws.extract_compact(compact_jws.encode()).payload)
    return document


def evidence_in(compact_jws: str) -> guarantees.Evidence:
    """Return the evidence in a certificate issued by this installation, without verifying the signature."""
    return guarantees.Evidence.from_json(statement_in(compact_jws)["evidence"])


def sha256(weights: bytes) -> str:
    """Return the hexadecimal SHA-256 that identifies weights in the ledger and in certificates."""
    return hashlib.sha256(weights).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    jws: str
    statement: dict[str, Any]


def of(session: Session, keys: Keys, request: tables.DeletionRequest, *, identity_rule: str) -> Absence | None:
    """Return a signed statement that the request's datasets held nothing when it was accepted, or None if they did.

    Call it only for callers who may know what is held. `identity_rule` states in words when two identifiers denote the
    same person; the rule is fixed once the tenant has a request.
    """
    looked_at = repository.accepted_at(session, request_id=request.id)
    if request.outcome != sets.Outcome.NOTHING_HELD or looked_at is None:
        return None
    statement = absence.statement(
        request={"id": request.id, "submitted_at": request.submitted_at.isoformat()},
        looked_at=looked_at.isoformat(),
        identity_rule=identity_rule,
        dataset_ids=repository.datasets_at(session, at=looked_at, among=request.dataset_ids),
    )
    return Absence(jws=sign(keys, statement), statement=statement)
