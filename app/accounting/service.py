"""The state of a model's guarantees, and what the next request will take."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.accounting import budgets, certificates, ledger, repository
from app.db.mechanisms import stored_mechanism
from app.db.tables import Certificate, Erasure, Model
from lethe.contract.problems import ModelNotLive
from lethe.proof import accountant, guarantees, joint
from lethe.proof.accountant import Chain
from lethe.proof.errors import InfeasibleError
from lethe.proof.guarantees import Evidence, Guarantee, Notion
from lethe.proof.joint import Joint
from lethe.theorems import calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAccount:
    """A model's live version on the data as they are now: rows that became null since it was published count, and rows
    that came since, which it will only have when it has learned again."""

    chain: Chain
    guarantees: list[Guarantee]


def standing(session: Session, model: Model) -> LiveAccount:
    """Raises `ModelNotLive`."""
    history = ledger.history_of(session, model_id=model.id, mechanism=stored_mechanism(model.mechanism))
    began = repository.chain_began_at(session, model_id=model.id)
    if began is None:
        raise ModelNotLive(f"Model {model.id} is {model.status}; wait until its first version is published.")
    edited = repository.records_added_since(session, dataset_id=model.dataset_id, revision=began)
    edited += repository.records_waiting_for(session, model)
    chain = accountant.erased(history.chain, records=edited)
    return LiveAccount(chain=chain, guarantees=guarantees.of_chain(chain, last_run=history.runs[-1], delta=model.delta))


def guarantees_of(session: Session, model: Model) -> list[Guarantee]:
    """The guarantees of everybody at the live version. Raises `ModelNotLive`."""
    return standing(session, model).guarantees


def reset(model: Model, *, at_most: int) -> tuple[int, Guarantee] | None:
    """The least steps on the present data after which it no longer matters where a model started, to its target; and
    the guarantee then. For models from elsewhere, and for repair. None if `at_most` do not reach it."""
    imported = accountant.imported(stored_mechanism(model.mechanism))
    try:
        steps = calibration.least_steps(imported, records=0, epsilon=model.epsilon, delta=model.delta, at_most=at_most)
    except InfeasibleError:
        return None
    mu = accountant.reset_mu(imported.mechanism, steps=steps)
    return steps, guarantees.guarantee(Notion.RESET, mu=mu, delta=model.delta)


def epsilon_without_steps(chain: Chain, *, records: int, delta: float) -> float:
    """The `unlearning` epsilon if `records` more became null and no step were run: what unlearning is for."""
    return calibration.least_epsilon(chain, records=records, steps=0, delta=delta)


def releases_left(
    session: Session, model: Model, *, records: int, steps: int, epsilon: float, delta: float
) -> int | None:
    """Number of versions of `model`, by runs of `steps`, that still fit the `adaptive` budget of a person who stays.

    Of one whose `records` have fed every version of every model of the dataset. None: what is published exceeds it.
    """
    exposed = list(budgets.exposures(session, dataset_id=model.dataset_id, records=records).values())
    mechanism = stored_mechanism(model.mechanism)
    try:
        return calibration.releases_left(exposed, mechanism, records=records, steps=steps, epsilon=epsilon, delta=delta)
    except InfeasibleError:
        return None


def room(chain: Chain, *, epsilon: float, delta: float) -> int:
    """Number of records that can still be forgotten together before learning again is no dearer; 0 if it is already."""
    fewer = chain.mechanism.learn_steps - 1
    if fewer == 0:
        return 0
    try:
        return calibration.most_records(chain, steps=fewer, epsilon=epsilon, delta=delta)
    except InfeasibleError:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The statement that was signed about one request and one model, and the guarantees of the model's live version
    today. `signed`: None for a certificate of an earlier format, which cannot be verified any more."""

    certificate: Certificate
    signed: list[Guarantee]
    today: list[Guarantee]


def statements_of(session: Session, *, request_id: str) -> list[Statement]:
    """Every certified model of a request. Today's numbers differ from the signed ones by what ran since: `deletion`
    only falls, `unlearning` also counts people who were deleted later."""
    erasures = {erasure.dataset_id: erasure for erasure in repository.erasures_of(session, request_id=request_id)}
    found = []
    for certificate in repository.certificates_of(session, request_id=request_id):
        model = session.get_one(Model, certificate.model_id)
        evidence = _evidence(session, model, erasures[model.dataset_id])
        now = standing(session, model).guarantees
        today = [next((g for g in now if g.notion == mine.notion), mine) for mine in evidence.guarantees()]
        signed = certificates.evidence_in(certificate.jws)
        found.append(Statement(certificate=certificate, signed=signed.guarantees() if signed else [], today=today))
    return found


def joint_of(session: Session, *, request_id: str) -> Joint | None:
    """The joint guarantee of the person of a request over all models that carried them, each as it was signed. None
    while one of them still has to forget, and where none carried the person.

    A request that followed another has certificates of the models that still carried its rows when it came; what the
    others guarantee is as of today, which is no more than was signed for the other request; the same of models whose
    certificate is of an earlier format. Of a model that was destroyed nothing is left to tell.
    """
    if repository.is_model_waited_for(session, request_id=request_id):
        return None
    evidences: dict[str, Evidence] = {}
    for certificate in repository.certificates_of(session, request_id=request_id):
        if signed := certificates.evidence_in(certificate.jws):
            evidences[certificate.model_id] = signed
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
