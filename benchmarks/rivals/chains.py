"""Rivals that run the service's own chain (`worker.langevin.chain.run`): other noise, batches, plans and accounting.

Batches are read in turn over all runs of a chain, as in the service: a pass is as many steps as there are batches.

- Learning again, by the chain.
- Langevin unlearning as published: Chien, Wang, Chen and Li, "Langevin unlearning", NeurIPS 2024, arXiv 2401.10371:
  step size 1/L, steps by Corollary 3.4 and Algorithm 6 for a sequence of single requests.
- Noisy SGD as published: Chien, Wang, Chen and Li, "Certified machine unlearning via noisy stochastic gradient
  descent", NeurIPS 2024, arXiv 2403.17105: step size 1/L, a fixed cycle of batches, epochs by its bound for strongly
  convex losses, of laws that learning has reached: alpha Z^2 c^(2 K n/b) / (2 eta sigma^2) after K epochs, and
  Z <- c^(K n/b) Z + Z_B, at most 2 R, from request to request.
- The same chain with this product's accounting, and this product's own noise, batches and step size.
- Doing nothing: the noise of learning is there already, and so is some guarantee.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from app.unlearning import planner
from app.unlearning.planner import Plan, PlanReason
from benchmarks.origin import origin
from benchmarks.rivals.rival import Certified, Claim, Record, Rows, Setting, State, Weights
from lethe.features.insight import margins
from lethe.features.theorems import evaluate
from lethe.proof import accountant, calibration, conversion, methods
from lethe.proof.accountant import Chain, Run
from lethe.proof.mechanism import Mechanism
from worker.langevin import chain, engines
from worker.langevin.noise import SystemNoise

PAPERS_NOISE = 3.0
"""Of Algorithm 4's least noise for one step. On MNIST 3 against 8, at the paper's l2, this is 0.0287: it has 0.03."""

_RETRAINING = "learning from scratch on the data without the records, on the same schedule"
_OURS = Claim(
    kind="certified",
    guarantee="unlearning (mu-GDP), and adaptive",
    compared_with=_RETRAINING,
    adjacency="record against null",
    adaptive="yes, with its own epsilon",
    secret="nothing",
    reference="docs/mathematics/shift.md",
)
_LEARN_AGAIN = Claim(
    kind="exact",
    guarantee="exact retraining, and adaptive",
    compared_with=_RETRAINING,
    adjacency="record against null",
    adaptive="yes, with its own epsilon",
    secret="nothing",
    reference="docs/mathematics/shift.md",
)
_PAPERS = Claim(
    kind="certified",
    guarantee="unlearning (Renyi)",
    compared_with="the stationary law of learning on the data without the records",
    adjacency="record against any other",
    adaptive="no: non-adaptive requests only",
    secret="nothing",
    reference="Chien et al. 2024, Corollary 3.4, Algorithm 6",
)
_NOISY_SGD = replace(
    _PAPERS,
    compared_with="the law that learning on the data without the records tends to, same cycle of batches",
    reference="Chien et al. 2024b",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a chain stands by our accountant, the steps of all runs whose result was published, and how many requests
    it has served since it was learned from scratch."""

    chain: Chain
    releases: tuple[int, ...]
    served: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyChain:
    """`plan` says what to run for a chain that has served so many requests since it was learned; None for nothing."""

    name: str
    title: str
    claim: Claim
    setting: Setting
    mechanism: Mechanism
    plan: Callable[[Chain, int], Plan | None]
    ours: bool = True
    relearns_as_reference: bool = False

    @property
    def l2(self) -> float:
        return self.mechanism.l2

    @property
    def noise_std(self) -> float:
        """Of what is published, per coordinate, where nothing but the regulariser holds it."""
        return self.mechanism.noise_scale * math.sqrt(
            2 * self.mechanism.step_size / (1 - self.mechanism.contraction**2)
        )

    def learn(self, rows: Rows) -> State:
        steps = self.mechanism.learn_steps
        standing = Standing(chain=accountant.replay(self.mechanism, [Run(steps=steps)]), releases=(steps,))
        return State(weights=run(self.mechanism, rows, None, steps), passes=self._passes(steps), kept=standing)

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        standing: Standing = state.kept
        plan = self.plan(standing.chain, standing.served)
        if plan is None:
            erased = Standing(chain=accountant.erased(standing.chain, records=1), releases=standing.releases)
            return State(weights=state.weights, passes=0, kept=erased)
        unlearns = plan.kind == "unlearn"
        start, before = (state.weights, standing.chain.steps) if unlearns else (None, 0)
        weights = run(self.mechanism, rows, start, plan.steps, first_step=before)
        standing = Standing(
            chain=planner.after(standing.chain, plan, records=1),
            releases=(*standing.releases, plan.steps),
            served=standing.served + 1 if unlearns else 0,
        )
        return State(weights=weights, passes=self._passes(plan.steps), kept=standing)

    def certified(self, state: State) -> Certified:
        """By our accountant; the published one promises its target and nothing about earlier versions."""
        standing: Standing = state.kept
        target, delta = self.setting.epsilon, self.setting.delta
        if not self.ours:
            return Certified(forgotten=target, adaptive=None)
        seen = standing.releases[:-1] or standing.releases  # versions published while the last of them was there
        mu = methods.adaptive_mu([accountant.exposed(self.mechanism, Counter(seen), records=1)])
        return Certified(
            forgotten=margins.least_epsilon(standing.chain, records=0, steps=0, delta=delta),
            adaptive=conversion.gdp_epsilon(mu=mu, delta=delta),
        )

    def _passes(self, steps: int) -> float:
        return steps / self.mechanism.num_batches


def run(mechanism: Mechanism, rows: Rows, start: Weights | None, steps: int, *, first_step: int = 0) -> Weights:
    """What the worker runs, in this process; the chain has taken `first_step` steps before."""
    width = rows.features.shape[1]
    return chain.run(
        features=rows.features,
        labels=rows.labels,
        mechanism=mechanism,
        initial=origin(num_classes=mechanism.num_classes, num_features=width) if start is None else start,
        first_step=first_step,
        steps=steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
        backend=engines.Backend(threads=1),
    ).parameters


# --- which there are -------------------------------------------------------------------------------------------------


def learn_again(setting: Setting) -> NoisyChain:
    return NoisyChain(
        name="retrain_chain",
        title="retrain, our chain",
        claim=_LEARN_AGAIN,
        setting=setting,
        mechanism=ours_at(setting),
        plan=lambda chain, served: planner.learn(chain.mechanism, kind="relearn"),
    )


def published(setting: Setting) -> NoisyChain:
    """Their noise, step size and steps; where learning again takes no more, that, and the count restarts."""
    mechanism = papers_mechanism(setting)
    steps = papers_steps(setting, mechanism.noise_scale)

    def plan(chain: Chain, served: int) -> Plan:
        if steps[served] < mechanism.learn_steps:
            return Plan(kind="unlearn", steps=steps[served], reason=PlanReason.REQUESTED)
        return planner.learn(mechanism, kind="relearn")

    return NoisyChain(
        name="langevin_paper",
        title="Langevin, paper's accounting",
        claim=_PAPERS,
        setting=setting,
        mechanism=mechanism,
        plan=plan,
        ours=False,
    )


def noisy_sgd(setting: Setting) -> NoisyChain:
    """At our noise, with our batches."""
    made = sgd_mechanism(setting, ours_at(setting).noise_scale)
    epochs = sgd_epochs(setting, made)

    def plan(chain: Chain, served: int) -> Plan:
        steps = epochs[served] * made.num_batches
        if steps < made.learn_steps:
            return Plan(kind="unlearn", steps=steps, reason=PlanReason.REQUESTED)
        return planner.learn(made, kind="relearn")

    return NoisyChain(
        name="noisy_sgd",
        title="noisy SGD, paper's accounting",
        claim=_NOISY_SGD,
        setting=setting,
        mechanism=made,
        plan=plan,
        ours=False,
    )


def accounted_by_us(setting: Setting) -> NoisyChain:
    return _planned(
        "langevin_paper_noise", "Langevin, paper's noise, our accounting", setting, papers_mechanism(setting)
    )


def ours(setting: Setting) -> NoisyChain:
    return _planned("langevin_ours", "Langevin, ours", setting, ours_at(setting))


def all_rows(setting: Setting) -> NoisyChain:
    """As much noise, and every step reads every row."""
    made = ours_at(setting, noise_scale=ours_at(setting).noise_scale, batch_size=setting.num_slots)
    return _planned("langevin_all_rows", "Langevin, ours, all rows a step", setting, made)


def as_shipped(setting: Setting) -> NoisyChain:
    """With the regularisation that the service chooses when nobody says, instead of the one all others share."""
    mechanism = ours_at(setting, l2=calibration.default_l2(setting.num_slots, setting.epsilon))
    return _planned("langevin_shipped", "Langevin, ours as shipped", setting, mechanism)


def quiet(setting: Setting, noise_std: float) -> NoisyChain:
    """With so little noise that what is published carries no more than `noise_std` per coordinate."""
    loud = ours(setting)
    mechanism = ours_at(setting, noise_scale=loud.mechanism.noise_scale * noise_std / loud.noise_std)
    return _planned("langevin_quiet", "Langevin, ours, at D2D's noise", setting, mechanism)


def nothing(setting: Setting) -> NoisyChain:
    return NoisyChain(
        name="nothing_chain",
        title="doing nothing, our chain",
        claim=_OURS,
        setting=setting,
        mechanism=ours_at(setting),
        plan=lambda chain, served: None,
    )


def _planned(name: str, title: str, setting: Setting, mechanism: Mechanism) -> NoisyChain:
    def plan(chain: Chain, served: int) -> Plan:
        return planner.forget(chain, records=1, epsilon=setting.epsilon, delta=setting.delta)

    return NoisyChain(name=name, title=title, claim=_OURS, setting=setting, mechanism=mechanism, plan=plan)


def ours_at(setting: Setting, **chosen: Any) -> Mechanism:
    """The service's mechanism, but for the regularisation that all share and what else is `chosen`."""
    target = {"epsilon": setting.epsilon, "delta": setting.delta, "l2": setting.l2}
    return calibration.mechanism_for(
        calibration.ModelSettings(**target | chosen),
        num_slots=setting.num_slots,
        num_classes=setting.num_classes,
        num_parameters=setting.num_parameters,
    )


# --- as published ----------------------------------------------------------------------------------------------------


def papers_mechanism(setting: Setting) -> Mechanism:
    asked = setting.constants | {"eps_target": setting.epsilon, "delta": setting.delta, "K": 1, "S": 1}
    noise: float = PAPERS_NOISE * evaluate("alg4_sigma", asked)["sigma"]
    return ours_at(setting, noise_scale=noise, step_size=1 / setting.constants["L"], batch_size=setting.num_slots)


def papers_steps(setting: Setting, noise_scale: float, *, sensitivity: float = 1.0) -> list[int]:
    """Steps per request; at half the `sensitivity` for a record against null, which the paper does not treat."""
    asked = setting.constants | {"eps_target": setting.epsilon, "delta": setting.delta, "sigma": noise_scale}
    asked["Mlip"] *= sensitivity
    steps: list[int] = evaluate("alg6_K_list", asked | {"total": setting.requests, "batch": 1})["K"]
    return steps


def sgd_mechanism(setting: Setting, noise_scale: float) -> Mechanism:
    """It learns for whole epochs, and its step size does not fall."""
    settings = {"noise_scale": noise_scale, "step_size": 1 / setting.constants["L"], "cool_down": 1}
    made = ours_at(setting, **settings)
    epochs = math.ceil(made.learn_steps / made.num_batches)
    return ours_at(setting, **settings, learn_steps=epochs * made.num_batches)


def sgd_epochs(setting: Setting, mechanism: Mechanism) -> list[int]:
    """Epochs per request, the least that reach the target by `sgd_eps_printed` at the best order."""
    size = mechanism.num_slots // mechanism.num_batches  # of the smallest batch
    asked = {"eta": mechanism.step_size, "m": setting.l2, "n": size * mechanism.num_batches, "b": size}
    moved: float = evaluate("sgd_z", asked | {"Mlip": setting.constants["Mlip"]})["z"]
    faded = mechanism.contraction**mechanism.num_batches
    apart, found = 0.0, list[int]()
    for _ in range(setting.requests):
        apart, epochs = min(apart + moved, 2 * mechanism.radius), 1
        spent = asked | {"alpha": 2.0, "z": apart, "sigma": mechanism.noise_scale}
        while _of_divergence(evaluate("sgd_eps_printed", spent | {"K": epochs})["eps"] / 2, setting) > setting.epsilon:
            epochs += 1
        found.append(epochs)
        apart *= faded**epochs
    return found


def _of_divergence(slope: float, setting: Setting) -> float:
    """The epsilon of Renyi divergences of `slope` times the order, at the best order."""
    return slope + 2 * math.sqrt(slope * math.log(1 / setting.delta))
