"""Present guarantees of a model, and the cost of the next request."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.accounting import budgets, certificates, ledger, repository
from app.db.tables import Certificate, Erasure, Model, stored_mechanism
from lethe.contract.problems import ModelNotLive
from lethe.proof import accountant, calibration, guarantees, joint
from lethe.proof.accountant import Chain
from lethe.proof.errors import InfeasibleError
from lethe.proof.guarantees import Evidence, Guarantee, Notion
from lethe.proof.joint import Joint


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAccount:
    """Account of a model's live version against the present data. Rows that became null since its publication count as
    edits, and so do rows added since its chain began, which it includes only after relearning."""

    chain: Chain
    guarantees: list[Guarantee]


def standing(session: Session, model: Model) -> LiveAccount:
    """Return the account of a model's live version, or raise `ModelNotLive`."""
    history = ledger.history_of(session, model_id=model.id, mechanism=stored_mechanism(model.mechanism))
    began = repository.chain_began_at(session, model_id=model.id)
    if began is None:
        raise ModelNotLive(f"Model {model.id} is {model.status}; wait until its first version is published.")
    edited = repository.records_added_since(session, dataset_id=model.dataset_id, revision=began)
    edited += repository.records_waiting_for(session, model)
    chain = accountant.erased(history.chain, records=edited)
    return LiveAccount(chain=chain, guarantees=guarantees.of_chain(chain, last_run=history.runs[-1], delta=model.delta))


def guarantees_of(session: Session, model: Model) -> list[Guarantee]:
    """Return the guarantees of a model's live version against the present data. Raises `ModelNotLive`."""
    return standing(session, model).guarantees


def reset(model: Model, *, at_most: int) -> tuple[int, Guarantee] | None:
    """Return the minimum number of steps on the present data after which a model's initial parameters no longer matter
    up to its target, and the guarantee after them; None above `at_most`. Used for imported models and for repair."""
    imported = accountant.imported(stored_mechanism(model.mechanism))
    try:
        steps = calibration.least_steps(imported, records=0, epsilon=model.epsilon, delta=model.delta, at_most=at_most)
    except InfeasibleError:
        return None
    mu = accountant.reset_mu(imported.mechanism, steps=steps)
    return steps, guarantees.guarantee(Notion.RESET, mu=mu, delta=model.delta)


def epsilon_without_steps(chain: Chain, *, records: int, delta: float) -> float:
    """Return the `unlearning` epsilon if `records` more records became null and no step were run."""
    return calibration.least_epsilon(chain, records=records, steps=0, delta=delta)


def releases_left(
    session: Session, model: Model, *, records: int, steps: int, epsilon: float, delta: float
) -> int | None:
    """Return the number of versions, by runs of `steps`, that still fit the `adaptive` budget of a remaining person.

    The person's `records` have fed every version of every model of the dataset. None if the budget is exceeded already.
    """
    exposed = list(budgets.exposures(session, dataset_id=model.dataset_id, records=records).values())
    mechanism = stored_mechanism(model.mechanism)
    try:
        return calibration.releases_left(exposed, mechanism, records=records, steps=steps, epsilon=epsilon, delta=delta)
    except InfeasibleError:
        return None


def room(chain: Chain, *, epsilon: float, delta: float) -> int:
    """Return the maximum number of records whose joint unlearning is still cheaper than relearning; 0 if none."""
    fewer = chain.mechanism.learn_steps - 1
    if fewer == 0:
        return 0
    try:
        return calibration.most_records(chain, steps=fewer, epsilon=epsilon, delta=delta)
    except InfeasibleError:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateStatement:
    """Signed guarantees of one request and one model, and the guarantees of the model's live version today."""

    certificate: Certificate
    signed: list[Guarantee]
    today: list[Guarantee]


def statements_of(session: Session, *, request_id: str) -> list[CertificateStatement]:
    """Return a statement per certified model of a request. Runs since change today's numbers: `deletion` only falls,
    while `unlearning` also counts people deleted later."""
    erasures = {erasure.dataset_id: erasure for erasure in repository.erasures_of(session, request_id=request_id)}
    certified = []
    for certificate in repository.certificates_of(session, request_id=request_id):
        model = session.get_one(Model, certificate.model_id)
        evidence = _evidence(session, model, erasures[model.dataset_id])
        now = standing(session, model).guarantees
        today = [next((g for g in now if g.notion == mine.notion), mine) for mine in evidence.guarantees()]
        signed = certificates.evidence_in(certificate.jws)
        certified.append(CertificateStatement(certificate=certificate, signed=signed.guarantees(), today=today))
    return certified


def joint_of(session: Session, *, request_id: str) -> Joint | None:
    """Return the joint guarantee of a request's person over all models that carried them, each as signed. None while a
    model still has to forget, or if no model carried the person.

    A request that joined another's erasure has certificates only of models that still carried the rows when it came.
    The other models contribute their guarantee of today, whose epsilon does not exceed the one signed for the earlier
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
        for model in repository.models_of(session, dataset_id=erasure.dataset_id):
            fed = repository.releases_before(session, model_id=model.id, revision=erasure.revision)
            if model.id in evidences or not fed or model.destroyed_at is not None:
                continue
            if not repository.is_live_since(session, model, revision=erasure.revision):
                return None
            evidences[model.id] = _evidence(session, model, erasure)
    return joint.of(evidences) if evidences else None


def _evidence(session: Session, model: Model, erasure: Erasure) -> Evidence:
    history = ledger.history_of(session, model_id=model.id, mechanism=stored_mechanism(model.mechanism))
    return certificates.Evidences(session, model, history).of(erasure)
