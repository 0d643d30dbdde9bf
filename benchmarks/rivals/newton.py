"""One noisy Newton step: Sekhari, Acharya, Kamath and Suresh, NeurIPS 2021, and Pandey, Auddy, Zou, Maleki and Kulkarni
2025, arXiv 2510.13094, whose guarantee is a Gaussian one (mu-GDP).

Learning minimises F(w) = sum of losses + l2 n/2 |w|^2 over the n slots. A request takes one Newton step on the rows
that are left, from the minimiser that was kept, and publishes the result plus N(0, tau^2 I). More than two classes are
one against the rest.

Why it holds. F is (l2 n)-strongly convex, so |w - argmin F| <= |grad F(w)|/(l2 n), and the gradient on the rows that
are left is measured after the step. If the distance is at most mu tau, the published weights are mu-GDP against
learning and publishing on these rows. The papers bound the distance in advance instead. For finite n that is
gamma C/(2 n^2 l2^3), with gamma = 1/(6 sqrt 3) and C weight vectors (`distance_in_advance`); without any step it is at
most sqrt(C)/(n l2). The bound of arXiv 2510.13094 is asymptotic, in n and the number of columns together.

Readers of earlier versions, which the papers leave out: before noise a version is a function of the rows and the
requests alone, and so versions compose as Gaussian mechanisms. While the record was there two worlds are at most
sqrt(C)/(n l2) + 2 mu tau apart, afterwards 2 mu tau, since the kept weights still depend on it.

To the method's advantage: the measured distance replaces the bound, so tau is a tenth of the noise of our chain (or all
of it, for a twentieth of mu); if a step does not come near enough there is another; the gradient at the kept weights is
kept with them, and conjugate gradients stop as soon as their residual is a tenth of what may be left.
"""

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.rivals.removal import CURVATURE_LIPSCHITZ, RegularisedLoss, positives, record_gradient
from benchmarks.rivals.rival import Certified, Claim, Record, Rows, Setting, State, Weights, gaussian
from lethe.proof import conversion

NOISE_SHARE = 0.1
"""Of the noise of our chain at the same l2: public, and too little to cost accuracy."""
SPENT_IF_LOUD = 0.05
"""Of the target's mu, with all the noise of our chain."""
_LEARNING, _SOLVING = 0.01, 0.1
"""Parts of the distance left to the learning of the reference, and of the gradient left to conjugate gradients."""

CLAIM = Claim(
    kind="certified",
    guarantee="unlearning (mu-GDP)",
    compared_with="its own learning and publication on the data without the record",
    adjacency="record against null",
    adaptive="yes, with its own epsilon: output noise composes (ours, not the papers')",
    secret="the minimiser and its gradient",
    reference="Sekhari et al. 2021; Pandey et al. 2025, with a measured distance",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The weights before noise, the gradient there, the number of requests, and the steps that the last one took."""

    noiseless: Weights
    gradient: Weights
    requests: int = 0
    steps: int = 0


class NoisyNewton:
    relearns_as_reference = True
    claim = CLAIM

    def __init__(
        self,
        setting: Setting,
        noise_std: float,
        *,
        spent: float = 1.0,
        name: str = "noisy_newton",
        title: str = "one noisy Newton step",
    ) -> None:
        """`spent`: the share of the target's mu that the distance may take."""
        self.name, self.title = name, title
        self._setting, self.noise_std = setting, noise_std
        self.mu = spent * conversion.gdp_mu(epsilon=setting.epsilon, delta=setting.delta)

    @property
    def l2(self) -> float:
        return self._setting.l2

    @property
    def distance(self) -> float:
        """How far the weights before noise may be from the minimiser; the reference may be `_LEARNING` of mu tau."""
        return (1 - _LEARNING) * self.mu * self.noise_std

    def learn(self, rows: Rows) -> State:
        objective = self._objective(rows)
        weights, passes = objective.minimiser()
        gradient, steps = objective.gradient(weights), 0
        while self._distance(gradient) > _LEARNING * self.mu * self.noise_std:
            weights, gradient, taken = self._step(objective, weights, gradient)
            passes, steps = passes + taken, steps + 1
        return self._published(Kept(noiseless=weights, gradient=gradient, steps=steps), passes)

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        kept: Kept = state.kept
        objective = self._objective(rows)
        weights, gradient = kept.noiseless, kept.gradient - record_gradient(record, kept.noiseless)
        weights, gradient, passes = self._step(objective, weights, gradient)
        steps = 1
        while self._distance(gradient) > self.distance:
            weights, gradient, taken = self._step(objective, weights, gradient)
            passes, steps = passes + taken, steps + 1
        kept = Kept(noiseless=weights, gradient=gradient, requests=kept.requests + 1, steps=steps)
        return self._published(kept, passes)

    def certified(self, state: State) -> Certified:
        kept: Kept = state.kept
        _, alone = distance_in_advance(self._setting)
        nearby = 2 * self.distance
        mu = math.hypot((alone + nearby) * math.sqrt(max(kept.requests, 1)), nearby) / self.noise_std
        adaptive = conversion.gdp_epsilon(mu=mu, delta=self._setting.delta)
        forgotten = min(conversion.gdp_epsilon(mu=self.mu, delta=self._setting.delta), self._setting.epsilon)
        return Certified(forgotten=forgotten, adaptive=adaptive)

    def _step(self, objective: RegularisedLoss, weights: Weights, gradient: Weights) -> tuple[Weights, Weights, int]:
        """The weights after a Newton step, the gradient there, and passes: its own are one."""
        left = self.distance * self.l2 * self._setting.num_slots
        relative = _SOLVING * left / max(left, float(np.linalg.norm(gradient)))
        step, _, passes = objective.solve(weights, gradient, relative=relative)
        weights = weights - step
        return weights, objective.gradient(weights), passes + 1

    def _distance(self, gradient: Weights) -> float:
        return float(np.linalg.norm(gradient)) / (self.l2 * self._setting.num_slots)

    def _published(self, kept: Kept, passes: int) -> State:
        noise = gaussian(kept.noiseless.shape, self.noise_std)
        return State(weights=kept.noiseless + noise, passes=passes, kept=kept)

    def _objective(self, rows: Rows) -> RegularisedLoss:
        """A null row has no gradient, whatever its label."""
        return RegularisedLoss(
            features=rows.features.astype(np.float64),
            positive=positives(rows),
            ridge=self.l2 * self._setting.num_slots,
            tilt=np.zeros(self._setting.shape),
        )


def distance_in_advance(setting: Setting) -> tuple[float, float]:
    """Upper bounds on the distance from the minimiser without the record: after one exact Newton step, and without any.

    The record's gradient is at most 1 for each of C weight vectors, so the exact step v of each has |v| <= 1/(n l2).
    What it leaves of the gradient is at most gamma/2 sum_i (x_i v)^2 <= gamma n |v|^2/2.
    """
    classes, curvature = setting.shape[0], setting.num_slots * setting.l2
    left = CURVATURE_LIPSCHITZ * classes * setting.num_slots / (2 * curvature**2)
    return left / curvature, math.sqrt(classes) / curvature
