"""Where a model stands, and what the next request will take."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.accounting import ledger, repository
from app.db.tables import Model
from app.errors import ModelNotLive
from app.privacy import accountant, conversion, guarantees
from app.privacy.accountant import Chain, Run
from app.privacy.guarantees import Guarantee
from app.privacy.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A model's live version, as the accountant sees it."""

    chain: Chain
    last_run: Run
    guarantees: list[Guarantee]
    releases: int


def standing(session: Session, model: Model) -> Standing:
    """Raises `ModelNotLive`."""
    history = ledger.history_of(session, model_id=model.id)
    if not history:
        raise ModelNotLive(f"Model {model.id} is {model.status}; wait until its first version is published.")
    chain = accountant.replay(Mechanism.from_json(model.mechanism), history)
    return Standing(
        chain=chain,
        last_run=history[-1],
        guarantees=guarantees.of_chain(chain, last_run=history[-1], delta=model.delta),
        releases=repository.count_versions(session, model_id=model.id),
    )


def guarantees_of(session: Session, model: Model) -> list[Guarantee]:
    """What holds for everybody at the live version. Raises `ModelNotLive`."""
    return standing(session, model).guarantees


def epsilon_without_steps(chain: Chain, *, records: int, delta: float) -> float:
    """The `unlearning` epsilon if `records` more became null and no step were run: what unlearning is for."""
    mu = accountant.unlearning_mu(chain, records=records)
    return conversion.gdp_epsilon(mu=mu, delta=delta)
