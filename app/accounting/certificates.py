"""Certificates: statements signed with the installation's Ed25519 key; `lethe.verification` verifies them."""

import hashlib
import json
from collections import Counter
from typing import Any

from joserfc import jws
from sqlalchemy.orm import Session

from app import signing
from app.accounting import budgets, repository
from app.accounting.ledger import History
from app.db import now
from app.db.mechanisms import stored_mechanism
from app.db.tables import Certificate, Dataset, DeletionRequest, Erasure, LedgerEntry, Model, Run, Version, new_id
from app.keys import Keys
from lethe.contract.problems import CertificateUnknown
from lethe.proof import accountant
from lethe.proof import certificate as statements
from lethe.proof.accountant import Exposure
from lethe.proof.audit import Observed
from lethe.proof.budget import Budgeted
from lethe.proof.guarantees import Evidence
from lethe.proof.mechanism import Mechanism
from lethe.verification.certificates import TYPE
from lethe.verification.chains import canonical


def issue(
    session: Session,
    keys: Keys,
    *,
    request: DeletionRequest,
    erasure: Erasure,
    model: Model,
    dataset: Dataset,
    run: Run,
    version: Version,
    entry: LedgerEntry,
    evidence: Evidence,
    observed: Observed | None,
) -> Certificate:
    """Sign what is now true of one request and one model version, in the transaction that publishes it."""
    certificate_id, issued_at = new_id("crt"), now(session)
    statement = statements.statement(
        certificate_id=certificate_id,
        issued_at=issued_at.isoformat(),
        request={
            "id": request.id,
            "submitted_at": request.submitted_at.isoformat(),
            "records": erasure.num_records,
        },
        model={"id": model.id, "version": version.number, "weights_sha256": version.weights_sha256},
        dataset={"id": dataset.id, "revision": run.revision, "digest": dataset.digest},
        run={"id": run.id, "kind": run.kind, "steps": run.steps_total},
        epsilon=model.epsilon,
        ledger={"sequence": entry.sequence, "hash": entry.hash},
        evidence=evidence,
        observed=observed,
    )
    certificate = Certificate(
        id=certificate_id,
        tenant_id=request.tenant_id,
        request_id=request.id,
        model_id=model.id,
        version=version.number,
        jws=sign(keys, statement),
        issued_at=issued_at,
    )
    session.add(certificate)
    return certificate


class Evidences:
    """The evidence of many requests about one model, as its chain stands now: what they share is read once."""

    def __init__(self, session: Session, model: Model, history: History) -> None:
        self._session = session
        self._model = model
        self._history = history
        self._steps_present: dict[int, int] = {}
        self._releases: dict[tuple[str, int], list[tuple[str, Mechanism, Counter[int], int]]] = {}

    def of(self, erasure: Erasure) -> Evidence:
        """The evidence that the guarantees about this erasure depend on; the old part of the history is left out.

        Raises `PrivacyError` if the parts contradict each other.
        """
        revision, records = _claimed(self._session, erasure)
        exposures, under = self._exposures(erasure.request_id)
        return Evidence(
            mechanism=self._history.mechanism,
            steps_before=self._history.steps_before,
            history=self._history.runs,
            records=records,
            steps_present=self._steps_before(revision),
            exposures=exposures,
            budgets=under,
            delta=self._model.delta,
        )

    def _steps_before(self, revision: int) -> int:
        if revision not in self._steps_present:
            found = repository.chain_steps_before(self._session, model_id=self._model.id, revision=revision)
            self._steps_present[revision] = found
        return self._steps_present[revision]

    def _exposures(self, request_id: str) -> tuple[dict[str, Exposure], dict[str, Budgeted]]:
        """For every model that the request's records fed, the versions published while they were present: all so far,
        of the models of a dataset where they still are. And the budgets of their datasets, of those that have one."""
        exposures, under = {}, {}
        for erasure in repository.erasures_of(self._session, request_id=request_id):
            revision, records = _claimed(self._session, erasure)
            released = self._released(erasure.dataset_id, revision) if records else []
            for model_id, mechanism, steps, lost in released:
                exposures[model_id] = accountant.exposed(mechanism, steps, records=records, lost=lost)
            budget = budgets.of(self._session.get_one(Dataset, erasure.dataset_id))
            if budget and released:
                models = tuple(model_id for model_id, *_ in released)
                under[erasure.dataset_id] = Budgeted(budget=budget, models=models)
        return exposures, under

    def _released(self, dataset_id: str, revision: int) -> list[tuple[str, Mechanism, Counter[int], int]]:
        """By model of the dataset, the steps behind each version that was published before `revision`, and how many of
        these were lost."""
        if (dataset_id, revision) not in self._releases:
            models = repository.models_of(self._session, dataset_id=dataset_id)
            found = [
                (
                    model.id,
                    stored_mechanism(model.mechanism),
                    repository.releases_before(self._session, model_id=model.id, revision=revision),
                    len(model.lost_releases),
                )
                for model in models
            ]
            for model_id, mechanism, steps in repository.lost_models(self._session, dataset_id=dataset_id):
                found.append((model_id, mechanism, Counter(steps), len(steps)))
            self._releases[dataset_id, revision] = [one for one in found if one[2]]
        return self._releases[dataset_id, revision]


def _claimed(session: Session, erasure: Erasure) -> tuple[int, int]:
    """The revision at which an erasure's rows became null, and how many; of one that waits, as if claimed now."""
    if erasure.revision is not None and erasure.num_records is not None:
        return erasure.revision, erasure.num_records
    revision = session.get_one(Dataset, erasure.dataset_id).revision + 1
    return revision, repository.count_records_of(session, erasure=erasure)


def get(session: Session, certificate_id: str) -> Certificate:
    """Raises `CertificateUnknown`."""
    certificate = repository.certificate(session, certificate_id)
    if certificate is None:
        raise CertificateUnknown(f"There is no certificate {certificate_id!r}.")
    return certificate


def sign(keys: Keys, statement: dict[str, Any]) -> str:
    """The compact JWS (RFC 7515, RFC 9864) of a statement. Raises `SignatureUnverifiable`."""
    return signing.sign(keys, canonical(statement).encode(), kind=TYPE)


def public_keys(keys: Keys) -> dict[str, Any]:
    """The JWK set that `/.well-known/jwks.json` publishes."""
    return signing.public_keys(keys)


def statement_in(compact_jws: str) -> dict[str, Any]:
    """The statement inside a certificate of our own making, not verified."""
    document: dict[str, Any] = json.loads(jws.extract_compact(compact_jws.encode()).payload)
    return document


def evidence_in(compact_jws: str) -> Evidence | None:
    """The evidence in a certificate of our own making, not verified; None for an earlier format."""
    document = statement_in(compact_jws)
    return Evidence.from_json(document["evidence"]) if document["format"] == statements.FORMAT else None


def sha256(weights: bytes) -> str:
    """The digest by which ledger and certificates name weights."""
    return hashlib.sha256(weights).hexdigest()
