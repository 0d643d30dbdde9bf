"""Rivals that fit again without noise, and the two that do not learn: plain fits by scikit-learn's L-BFGS.

- L-BFGS from scratch on the rows that are left: deterministic, and exact to its tolerance.
- The same from where the version before stopped, which is as exact, and remembers that version as far as its tolerance.
- SISA: Bourtoule et al., "Machine unlearning", S&P 2021. Each record draws its shard; a fit per shard, their votes
  pooled; a request refits one. All fits are published, as the ensemble is.
- A random model, and a plain fit that does nothing.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.rivals.rival import NOTHING, Certified, Claim, Record, Rows, Setting, State, Weights, gaussian

SHARDS = 5


def fitted(rows: Rows, l2: float, start: Weights | None = None) -> tuple[Weights, int]:
    """The minimiser of the mean loss over all slots with (l2/2) |w|^2, from `start`, and the passes that took: one for
    the gradient there, and one an iteration."""
    model = LogisticRegression(C=1 / (l2 * len(rows)), fit_intercept=False, tol=1e-6, max_iter=10_000)
    if start is not None:
        model.set_params(warm_start=True)
        model.coef_ = start
    model.fit(rows.features, rows.labels)
    return np.asarray(model.coef_, np.float64), 1 + int(model.n_iter_.max())


_NO_CLAIM = Claim(
    kind="none", guarantee="none", compared_with="-", adjacency="-", adaptive="no", secret="nothing", reference="-"
)
_EXACT = Claim(
    kind="exact",
    guarantee="exact retraining",
    compared_with="the same fit on the data without the record",
    adjacency="any",
    adaptive="equals retraining always; nothing about earlier versions",
    secret="nothing",
    reference="-",
)
_NEARLY = Claim(
    kind="none",
    guarantee="none: exact to the solver's tolerance",
    compared_with="-",
    adjacency="-",
    adaptive="no",
    secret="nothing",
    reference="-",
)
_SISA = Claim(
    kind="exact",
    guarantee="exact retraining",
    compared_with="the same learning on the data without the record, shards drawn alike",
    adjacency="any",
    adaptive="no (Gupta et al. 2021); nothing about earlier versions",
    secret="who is in which shard",
    reference="Bourtoule et al. 2021",
)
_NO_DATA = Claim(
    kind="certified",
    guarantee="epsilon = 0: no data is read",
    compared_with="itself",
    adjacency="any",
    adaptive="yes, epsilon = 0",
    secret="nothing",
    reference="-",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """`warm`: each fit starts from the version before."""

    name: str
    title: str
    claim: Claim
    l2: float
    refits: bool = True
    warm: bool = False
    relearns_as_reference: bool = True

    def learn(self, rows: Rows) -> State:
        weights, passes = fitted(rows, self.l2)
        return State(weights=weights, passes=passes)

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        if not self.refits:
            return replace(state, passes=0)
        weights, passes = fitted(rows, self.l2, state.weights if self.warm else None)
        return State(weights=weights, passes=passes)

    def certified(self, state: State) -> Certified:
        return Certified(forgotten=0.0, adaptive=None) if self.claim.kind == "exact" else NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Sisa:
    setting: Setting
    name: str = "sisa"
    title: str = "SISA, 5 shards"
    relearns_as_reference: bool = True
    claim: Claim = _SISA

    @property
    def l2(self) -> float:
        return self.setting.l2

    def learn(self, rows: Rows) -> State:
        present, drawn = rows.features.any(axis=1), np.random.default_rng().integers(SHARDS, size=len(rows))
        shards = [np.flatnonzero(present & (drawn == number)) for number in range(SHARDS)]
        fits = [fitted(_part(rows, shard), self.l2) for shard in shards]
        passes = sum(passes * len(shard) / len(rows) for (_, passes), shard in zip(fits, shards, strict=True))
        return State(weights=np.stack([weights for weights, _ in fits]), passes=passes, kept=shards)

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        """The slot is the one that became null; only its shard is fitted again."""
        shards: list[NDArray[np.int64]] = state.kept
        weights, passes = state.weights.copy(), 0.0
        for number, shard in enumerate(shards):
            left = shard[rows.features[shard].any(axis=1)]
            if len(left) < len(shard):
                weights[number], of_shard = fitted(_part(rows, left), self.l2)
                passes = of_shard * len(left) / len(rows)
                shards = [*shards[:number], left, *shards[number + 1 :]]
        return State(weights=weights, passes=passes, kept=shards)

    def certified(self, state: State) -> Certified:
        return Certified(forgotten=0.0, adaptive=None)


def _part(rows: Rows, shard: NDArray[np.int64]) -> Rows:
    return Rows(features=rows.features[shard], labels=rows.labels[shard], num_classes=rows.num_classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomModel:
    setting: Setting
    name: str = "random"
    title: str = "random model"
    relearns_as_reference: bool = True
    claim: Claim = _NO_DATA

    @property
    def l2(self) -> float:
        return self.setting.l2

    def learn(self, rows: Rows) -> State:
        return State(weights=gaussian(self.setting.shape, 1.0), passes=0)

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        return self.learn(rows)

    def certified(self, state: State) -> Certified:
        return Certified(forgotten=0.0, adaptive=0.0)


def lbfgs(setting: Setting) -> Refit:
    return Refit(name="retrain_lbfgs", title="retrain, L-BFGS", claim=_EXACT, l2=setting.l2)


def warm(setting: Setting) -> Refit:
    return Refit(name="lbfgs_warm", title="L-BFGS, warm start", claim=_NEARLY, l2=setting.l2, warm=True)


def lbfgs_as_it_comes(setting: Setting) -> Refit:
    """With scikit-learn's own regularisation, C = 1."""
    return Refit(name="lbfgs_c1", title="retrain, L-BFGS, C = 1", claim=_EXACT, l2=1 / setting.num_slots)


def at_our_l2(l2: float) -> list[Refit]:
    """Both, with the regularisation that the service chooses when nobody says."""
    cold = Refit(name="lbfgs_shipped_l2", title="retrain, L-BFGS, l2 as ours shipped", claim=_EXACT, l2=l2)
    title = "L-BFGS, warm start, l2 as ours shipped"
    return [cold, Refit(name="warm_shipped_l2", title=title, claim=_NEARLY, l2=l2, warm=True)]


def nothing(setting: Setting) -> Refit:
    return Refit(name="nothing_fit", title="doing nothing, plain fit", claim=_NO_CLAIM, l2=setting.l2, refits=False)
