"""Other published guarantees, and what they would need for the same request, on the same problem with the same noise.

Each is taken at its best: its own step size, its own reference process, a model that has converged, and no request
before this one. What it assumes and this model does not fulfil is said, and then no number is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lethe.proof import renyi
from lethe.proof.accountant import Chain
from lethe.proof.errors import PreconditionError, PrivacyError
from lethe.proof.guarantees import REFERENCE_PROCESS, Notion
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency, Mechanism
from lethe.theorems import CALCULATOR, Bound, calibration, evaluate
from lethe.theorems.sweep import Refusal, refusal

T = TypeVar("T")
_MOST_STEPS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """`records` to be forgotten together, so that (`epsilon`, `delta`) holds of the version that follows."""

    records: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One way to serve the request: `steps`, or why there are none.

    `notion`, `adjacency` and `reference_process` say what its epsilon means: rows with different ones are beside each
    other, not comparable. `noise_std`: of the noise in what is published, per coordinate. `bound`: its theorem in the
    calculator.
    """

    name: str
    title: str
    notion: str
    adjacency: str
    reference_process: str
    reference: str
    assumptions: tuple[str, ...]
    bound: str | None
    steps: int | None
    noise_std: float | None
    refused: Refusal | None


def compare(chain: Chain, ask: Ask) -> list[Rival]:
    """This product, learning again, and the others; `chain`: where the model stands."""
    return [
        _ours(chain, ask),
        _relearning(chain.mechanism),
        _theirs("alg5_K", "langevin_unlearning", chain, ask, _langevin, **_RENYI_UNLEARNING),
        _theirs("g15_K", "data_deletion", chain, ask, _data_deletion, **_DATA_DELETION),
        _theirs("n2_d2d", "descent_to_delete", chain, ask, _descent_to_delete, **_ADD_REMOVE),
    ]


_RENYI_UNLEARNING = {
    "notion": Notion.UNLEARNING.value,
    "adjacency": Adjacency.REPLACE.value,
    "reference_process": "the stationary law of learning on the data without the records, after any number of steps",
}
_DATA_DELETION = {
    "notion": Notion.DELETION.value,
    "adjacency": Adjacency.REPLACE.value,
    "reference_process": "a law that does not depend on the deleted records; one direction",
}
_ADD_REMOVE = {
    "notion": Notion.UNLEARNING.value,
    "adjacency": "add_remove",
    "reference_process": "its own learning and publication on the data without the record, request by request",
}


def _ours(chain: Chain, ask: Ask) -> Rival:
    steps, refused = _or_refusal(
        lambda: calibration.least_steps(
            chain, records=ask.records, epsilon=ask.epsilon, delta=ask.delta, at_most=_MOST_STEPS
        )
    )
    return Rival(
        name="lethe",
        title="This model's own accounting",
        notion=Notion.UNLEARNING.value,
        adjacency=Adjacency.ZERO_OUT.value,
        reference_process=REFERENCE_PROCESS[Notion.UNLEARNING],
        reference="docs/mathematics/shift.md",
        assumptions=(),
        bound=None,
        steps=steps,
        noise_std=_stationary_std(chain.mechanism),
        refused=refused,
    )


def _relearning(mechanism: Mechanism) -> Rival:
    return Rival(
        name="relearning",
        title="Learning again from scratch",
        notion=Notion.UNLEARNING.value,
        adjacency=Adjacency.ZERO_OUT.value,
        reference_process="itself: nothing deleted has any influence on it, and epsilon is 0",
        reference="docs/mathematics/shift.md",
        assumptions=(),
        bound=None,
        steps=mechanism.learn_steps,
        noise_std=_stationary_std(mechanism),
        refused=None,
    )


def _theirs(
    name: str,
    rival: str,
    chain: Chain,
    ask: Ask,
    evaluated: Callable[[Mechanism, Ask], tuple[int, float]],
    *,
    notion: str,
    adjacency: str,
    reference_process: str,
) -> Rival:
    theorem: Bound = CALCULATOR[name]
    found, refused = _or_refusal(lambda: evaluated(chain.mechanism, ask))
    return Rival(
        name=rival,
        title=theorem.title,
        notion=notion,
        adjacency=adjacency,
        reference_process=reference_process,
        reference=theorem.reference,
        assumptions=theorem.assumptions,
        bound=name,
        steps=found[0] if found else None,
        noise_std=found[1] if found else None,
        refused=refused,
    )


def _langevin(mechanism: Mechanism, ask: Ask) -> tuple[int, float]:
    """Chien et al., Algorithm 5 with its count corrected: one batch, step size 1/L."""
    asked = _problem(mechanism) | {"eps_target": ask.epsilon, "sigma": mechanism.noise_scale, "S": ask.records}
    steps: int = evaluate("alg5_K", asked | {"delta": ask.delta, "at_most": _MOST_STEPS})["K"]
    return steps, _std(mechanism, step_size=1 / mechanism.smoothness, rate=1 - mechanism.l2 / mechanism.smoothness)


def _data_deletion(mechanism: Mechanism, ask: Ask) -> tuple[int, float]:
    """Chourasia and Shah, Theorem G.15, just below step size 1/L, at the order best for Mironov's conversion of mu:
    alpha mu^2/2 at alpha = 1 + sqrt(2 log(1/delta))/mu gives epsilon = mu^2/2 + mu sqrt(2 log(1/delta))."""
    if mechanism.objective is Objective.LEAST_SQUARES:
        raise PreconditionError("loss_lipschitz", "Expected gradients that are bounded outside of the ball too")
    deviation = math.sqrt(-2 * math.log(ask.delta))
    mu = 2 * ask.epsilon / (math.sqrt(deviation**2 + 2 * ask.epsilon) + deviation)
    order = renyi.gaussian_epsilon_mironov(mu=mu, delta=ask.delta).order
    smoothness = mechanism.smoothness
    step_size = (1 - 1e-9) / smoothness
    asked = {
        "q": order,
        "eps_dd": order * mu * mu / 2,
        "L": mechanism.gradient_bound,
        "lam": mechanism.l2,
        "beta": smoothness - mechanism.l2,
        "sigma": mechanism.noise_scale,
        "n": mechanism.num_slots,
        "eta": step_size,
        "S": ask.records,
    }
    steps: int = evaluate("g15_K", asked)["K"]
    return max(1, steps), _std(mechanism, step_size=step_size, rate=1 - step_size * mechanism.l2)


def _descent_to_delete(mechanism: Mechanism, ask: Ask) -> tuple[int, float]:
    """Neel et al., without a secret state: record by record, each as if it were the first (later ones take more)."""
    asked = _problem(mechanism) | {"d": mechanism.num_parameters, "i": 1, "eps": ask.epsilon, "delta": ask.delta}
    outputs = evaluate("n2_d2d", asked)
    most = -math.log(ask.delta)
    if ask.epsilon > most:
        raise PreconditionError(
            "epsilon_at_most_log", f"Expected epsilon={ask.epsilon:.6g} <= log(1/delta) = {most:.6g}"
        )
    return ask.records * outputs["iters"], outputs["sigma"]


def _problem(mechanism: Mechanism) -> dict[str, Any]:
    return {
        "Mlip": mechanism.gradient_bound,
        "m": mechanism.l2,
        "L": mechanism.smoothness,
        "n": mechanism.num_slots,
    }


def _stationary_std(mechanism: Mechanism) -> float:
    return _std(mechanism, step_size=mechanism.step_size, rate=mechanism.contraction)


def _std(mechanism: Mechanism, *, step_size: float, rate: float) -> float:
    """Standard deviation of noisy steps once they have settled, sqrt(2 eta sigma^2 / (1 - c^2)), in the slowest
    direction."""
    return mechanism.noise_scale * math.sqrt(2 * step_size / ((1 - rate) * (1 + rate)))


def _or_refusal(evaluated: Callable[[], T]) -> tuple[T | None, Refusal | None]:
    try:
        return evaluated(), None
    except PrivacyError as error:
        return None, refusal(error)
