"""A model's current guarantees, and the cost of its next request."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.accounting import certificates, ledger, repository
from app.db.tables import Erasure, Model, stored_mechanism
from lethe.contract.problems import ModelNotLive
from lethe.proof import accountant, guarantees, joint
from lethe.proof.guarantees import Evidence, Guarantee


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAccount:
    """Privacy account of a model's live version, relative to the current data. Rows that became null after the version
    was published count as edits. Rows added after its chain began also count, because only retraining includes them."""

    chain: accountant.Chain
    guarantees: list[Guarantee]


def standing(session: Session, model: Model) -> LiveAccount:
    """Return the privacy account of a model's live version. Raises `ModelNotLive`."""
    history = ledger.history_of(session, model_id=model.id, mechanism=stored_mechanism(model.mechanism))
    added = repository.records_added_to_chain(session, model)
    edited = ModelNotLive.if_none(added, model_id=model.id, status=model.status)
    edited += repository.records_waiting_for(session, model)
    chain = accountant.erased(history.chain, records=edited)
    return LiveAccount(chain=chain, guarantees=guarantees.of_chain(chain, last_run=history.runs[-1], delta=model.delta))


def joint_of(session: Session, *, request_id: str) -> joint.Joint | None:
    """Return the joint guarantee for a request's person across all models trained on their rows, computed from the
    signed guarantees; None while a model still has to forget the rows, or if no model was trained on them.

    A request that joined another's erasure has certificates only for models that still had the rows when it arrived.
    The other models contribute their current guarantee, whose epsilon does not exceed the one signed for the earlier
    request. Destroyed models do not contribute.
    """
    if repository.is_model_waited_for(session, request_id=request_id):
        return None
    evidences: dict[str, Evidence] = {}
    for certificate in repository.certificates_of(session, request_id=request_id):
        evidences[certificate.model_id] = certificates.evidence_in(certificate.jws)
    for erasure in repository.erasures_of(session, request_id=request_id):
        if erasure.revision is None or not erasure.num_records:
            continue
        before = repository.releases_before(session, dataset_id=erasure.dataset_id, revision=erasure.revision)
        for model, fed in before:
            if model.id in evidences or not fed or model.destroyed_at is not None:
                continue
            if not repository.is_live_since(session, model, revision=erasure.revision):
                return None
            evidences[model.id] = evidence_of(session, model, erasure)
    return joint.of(evidences) if evidences else None


def evidence_of(session: Session, model: Model, erasure: Erasure) -> Evidence:
    """Return the evidence that proves a model's guarantee about an erasure's rows."""
    history = ledger.history_of(session, model_id=model.id, mechanism=stored_mechanism(model.mechanism))
    return certificates.Evidences(session, model, history, request_ids=[erasure.request_id]).of(erasure)
