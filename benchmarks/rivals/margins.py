"""Are models that forgot a group like models that never had it? KLoM, and U-LiRA beside it.

- KLoM (Georgiev et al., "Attribute-to-Delete", ICLR 2025): of one row the margins in many models that forgot, and in as
  many oracles that learned without the group; the Kullback-Leibler divergence of the second law from the first, each as
  a histogram of 20 bins between the least and the largest margin of both, where an empty bin has 1e-5. The mean over
  rows is reported. It estimates, and proves nothing: of two sets of oracles it is not 0 (`FLOOR`).
- U-LiRA (`benchmarks.membership.likelihood`): the margins of the group, added up, by a rule that is fixed on some of
  the models and counted on the others. It proves, but finds only what it looks for.

Every rival has oracles of its own: it learns again on the rows without the group, which are null from the start.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from benchmarks.membership import experiment
from benchmarks.rivals import chains, descent, refits
from benchmarks.rivals.problems import Problem
from benchmarks.rivals.removal import CertifiedRemoval
from benchmarks.rivals.rival import Rival, Rows, State
from lethe.proof import calibration

GROUP = 20
FAMILY_ERROR = 0.05
FLOOR = "learning again, other oracles"
"""The title of the row in which both sets of models are oracles, of our chain."""
_BINS, _EMPTY, _FURTHEST = 20, 1e-5, 100.0
_PROBES = 3
"""Models that are made of whoever makes the same every time."""

Margins = NDArray[np.float64]  # (models, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Means over rows of KLoM; of U-LiRA the distance of the means in standard deviations, and mu from below. Both are
    infinite or 0 where nothing is random."""

    rival: str
    title: str
    forgotten: float
    kept: float
    test: float
    separation: float
    mu: float
    certified_epsilon: float | None


def grouped(problem: Problem) -> Problem:
    """The problem with the service's default l2, in which the row that a plain fit gets most wrong and its nearest
    rows with the same label ask to be forgotten."""
    rows = problem.train
    l2 = calibration.default_l2(len(rows), problem.setting.epsilon)
    weights, _ = refits.fitted(rows, l2)
    worst = int(np.argmin(margins([weights], rows)[0]))
    alike = np.flatnonzero(rows.labels == rows.labels[worst])
    nearest = np.argsort(-(rows.features[alike] @ rows.features[worst]), kind="stable")
    return replace(problem, l2=l2, forgotten=alike[nearest][:GROUP])


def rivals_of(problem: Problem) -> list[Rival]:
    setting = problem.setting
    return [
        chains.ours(setting),
        descent.without_secret_state(setting),
        CertifiedRemoval(setting, problem.train),
        refits.lbfgs(setting),
        refits.warm(setting),
        descent.negative_gradient(setting),
        descent.pseudo_label(setting),
        chains.nothing(setting),
        refits.nothing(setting),
    ]


def compare(problem: Problem, rivals: Sequence[Rival], *, models: int) -> list[Compared]:
    """By so many models of each kind; all bounds hold together but for `FAMILY_ERROR`. The first is the `FLOOR`."""
    error, again = FAMILY_ERROR / (len(rivals) + 1), chains.learn_again(problem.setting)

    def found(rival: Rival, title: str, forgets: bool) -> Compared:
        oracles = _models(models, f"{title}, oracles", lambda: _oracle(rival, problem))
        others = _models(models, title, lambda: (_forgotten if forgets else _oracle)(rival, problem))
        told = _told(problem, others, oracles, error=error)
        certified = rival.certified(others[-1]).forgotten
        return Compared(rival=rival.name, title=title, certified_epsilon=certified, **told)

    return [found(again, FLOOR, False), *(found(rival, rival.title, True) for rival in rivals)]


def margins(models: Sequence[NDArray[np.float64]], rows: Rows) -> Margins:
    """How much the logit of each row's own class is above the other, in models of two classes."""
    towards = (rows.features * np.where(rows.labels == 1, 1.0, -1.0)[:, None]).astype(np.float64)
    return np.stack([towards @ weights[0] for weights in models])  # one by one: the same model, the same bits


def klom(unlearned: Margins, oracles: Margins) -> float:
    """The mean over rows of KL(oracles || unlearned).

    >>> same = np.zeros((100, 1))
    >>> klom(same, same), round(klom(same + 1, same), 2)
    (0.0, 11.51)
    """
    return float(np.mean([_divergence(one, other) for one, other in zip(oracles.T, unlearned.T, strict=True)]))


def _divergence(one: Margins, other: Margins) -> float:
    one, other = np.clip(one, -_FURTHEST, _FURTHEST), np.clip(other, -_FURTHEST, _FURTHEST)
    low, high = min(one.min(), other.min()), max(one.max(), other.max())
    if low == high:
        return 0.0

    def shares(margins: Margins) -> Margins:
        bins = np.minimum((margins - low) / (high - low) * _BINS, _BINS - 1).astype(np.int64)
        counted: Margins = np.maximum(np.bincount(bins, minlength=_BINS) / len(margins), _EMPTY)
        return counted / np.sum(counted)

    p, q = shares(one), shares(other)
    return float((p * np.log(p / q)).sum())


def _told(problem: Problem, unlearned: Sequence[State], oracles: Sequence[State], *, error: float) -> dict[str, float]:
    weights = [[state.weights for state in kind] for kind in (unlearned, oracles)]
    kept = np.delete(np.arange(len(problem.train)), problem.forgotten)
    asked = {"forgotten": problem.train.at(problem.forgotten), "kept": problem.train.at(kept), "test": problem.test}
    found = {name: klom(*(margins(kind, rows) for kind in weights)) for name, rows in asked.items()}
    members, others = (margins(kind, asked["forgotten"]).sum(axis=1) for kind in weights)
    if np.ptp(members) == np.ptp(others) == 0:  # the standard deviation of equal numbers can be an ulp
        apart = 0.0 if members[0] == others[0] else np.inf
        return found | {"separation": apart, "mu": apart}
    told = experiment.told_apart(members, others, delta=problem.setting.delta, error=error)
    return found | {"separation": told["separation"], "mu": told["mu_at_least"]}


def _models(count: int, title: str, make: Callable[[], State]) -> list[State]:
    first = [make() for _ in range(_PROBES)]
    if all(np.array_equal(state.weights, first[0].weights) for state in first):
        return first
    return first + [make() for _ in track(range(count - _PROBES), title)]


def _oracle(rival: Rival, problem: Problem) -> State:
    rows = problem.train.copy()
    for slot in problem.forgotten:
        rows.take(int(slot))
    return rival.learn(rows)


def _forgotten(rival: Rival, problem: Problem) -> State:
    """After the group asked, one after the other."""
    rows = problem.train.copy()
    state = rival.learn(rows)
    for slot in problem.forgotten:
        record = rows.take(int(slot))
        state = rival.forget(state, rows, record)
    return state
