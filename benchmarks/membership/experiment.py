"""The three questions, asked of the models of one problem; every answer is a value of the JSON."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks import refuting
from benchmarks.membership import competition, likelihood, remembered
from benchmarks.membership.laws import Method, Models
from benchmarks.membership.likelihood import Scores
from benchmarks.membership.problems import Problem
from benchmarks.membership.requests import Request
from lethe.proof import conversion
from lethe.proof.canary_test import Guesses

FAMILY_ERROR = 0.05
"""All lower bounds of the attack hold together but for this probability, and so do all those of the competition."""
SHADOWS = 4  # one model in so many fixes the rule, the others are counted
CUTS = 10  # of the models that were learned again
SEPARATIONS = (0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0)

Answers = dict[str, Any]


def of_request(problem: Problem, request: Request, models: Models, *, error: float) -> Answers:
    """The attack on a request, each bound wrong with probability `error` at most, and what is remembered."""
    return {
        "models": len(models.retrained),
        "rows": len(request.slots),
        "steps": request.steps,
        "foreseen_mu": request.foreseen,
        "attack": attack(problem, request, models, error=error),
        "remembered": remember(problem, request, models),
    }


# --- who can tell? ---------------------------------------------------------------------------------------------------


def attack(problem: Problem, request: Request, models: Models, *, error: float) -> Answers:
    """U-LiRA against every method: can models that had the rows be told from those that never had them?"""
    return {method: _told_apart(problem, request, models, method, error) for method in Method}


def _told_apart(problem: Problem, request: Request, models: Models, method: Method, error: float) -> Answers:
    members = request.scores(problem.rows, models.members[method])
    nonmembers = request.scores(problem.rows, models.nonmembers[method])
    certified = {Method.NOTHING: request.mu_before, Method.UNLEARNING: request.mu_after}.get(method)
    return told_apart(members, nonmembers, delta=problem.delta, error=error) | {"certified_mu": certified}


def told_apart(members: Scores, nonmembers: Scores, *, delta: float, error: float) -> Answers:
    """What a rule that is fixed on the first models proves about the others."""

    def proves(guesses: Guesses) -> float:
        return refuting.mu_at_least(guesses, error=error)

    shadows = len(members) // SHADOWS
    rule = likelihood.fixed_on(members=members[:shadows], nonmembers=nonmembers[:shadows], proves=proves)
    tested = {"members": members[shadows:], "nonmembers": nonmembers[shadows:]}
    guesses = rule.guess(**tested)
    false, true = likelihood.roc(rule, **tested)
    thinned = len(false) - np.unique(np.geomspace(1, len(false), 60).astype(int))  # dense where alarms are few
    return {
        "shadows": shadows,
        "guesses": asdict(guesses),
        "separation": likelihood.separation(**tested),
        "mu_at_least": proves(guesses),
        "epsilon_at_least": refuting.epsilon_at_least(guesses, delta=delta, error=error),
        "roc": {"false": false[thinned].tolist(), "true": true[thinned].tolist()},
    }


# --- what does the competition's score say? --------------------------------------------------------------------------


def compete(problem: Problem, request: Request, models: Models, *, seed: int) -> dict[str, Answers]:
    """epsilon-hat of every forgotten row for each method against learning again, and for learning again against
    itself: all by half as many models of each kind as there are.

    What the rows of a request are given is alike, since the models are the same. Models that were learned again are
    therefore cut into halves several times, by `seed`: the mean is then that of a law against itself.
    """
    rows = problem.rows.at(request.slots)
    retrained = rows.logits(models.retrained)  # (models, rows)
    half = len(retrained) // 2
    generator = np.random.default_rng(seed)
    cuts = [np.array_split(generator.permutation(retrained), 2) for _ in range(CUTS)]
    pairs = {"retrained": [pair for one, other in cuts for pair in zip(one.T, other.T, strict=True)]}
    for method in Method:
        logits = rows.logits(models.members[method])
        pairs[method] = list(zip(logits[:half].T, retrained[:half].T, strict=True))
    certified = {"retrained": 0.0, "nothing": request.mu_before, "unlearning": request.mu_after}
    return {
        str(entry): {
            "models": half,
            **_scored(found, error=FAMILY_ERROR / len(pairs) / len(found)),
            "certified_epsilon": _epsilon(certified.get(entry)),
        }
        for entry, found in pairs.items()
    }


def _epsilon(mu: float | None) -> float | None:
    return None if mu is None else conversion.gdp_epsilon(mu=mu, delta=competition.DELTA) if mu else 0.0


def calibrate(*, num_models: int, repeats: int, seed: int, done: Callable[[], None]) -> list[Answers]:
    """epsilon-hat where the truth is known: normal scores of variance one and means that are mu apart."""
    generator = np.random.default_rng(seed)
    found = []
    for mu in SEPARATIONS:
        pairs = [(mu + generator.normal(size=num_models), generator.normal(size=num_models)) for _ in range(repeats)]
        answers = _scored(pairs, error=FAMILY_ERROR)
        del answers["epsilon_hats"]
        found.append({"mu": mu, "true_epsilon": _epsilon(mu), "models": num_models, "repeats": repeats} | answers)
        done()
    return found


def _scored(pairs: list[tuple[Scores, Scores]], *, error: float) -> Answers:
    """Of pairs of scores in unlearned and in retrained models: the epsilon-hats, and what is proved instead."""
    num_models = len(pairs[0][0])
    published = np.array([competition.epsilon_hat(*pair) for pair in pairs])
    single = np.array([competition.epsilon_hat(*pair, two_thresholds=False) for pair in pairs])
    proved = np.array([competition.epsilon_bound(*pair, delta=competition.DELTA, error=error) for pair in pairs])
    return {
        "epsilon_hats": published.tolist(),
        "epsilon_hat": _spread(published) | {"score": competition.score(published, num_models=num_models)},
        "one_threshold": _spread(single) | {"score": competition.score(single, num_models=num_models)},
        "epsilon_at_least": _spread(proved),
    }


def _spread(values: Scores) -> Answers:
    low, high = np.quantile(values, (0.05, 0.95))
    quantiles = {"mean": values.mean(), "low": low, "high": high, "greatest": values.max()}
    return {name: float(value) for name, value in quantiles.items()}


# --- what is forgotten, what is remembered? --------------------------------------------------------------------------


def remember(problem: Problem, request: Request, models: Models) -> dict[str, Mapping[str, Answers]]:
    """How models do on the forgotten rows, on those that stay and on others: before, after, and learned again."""
    kept = np.delete(np.arange(len(problem.rows.labels)), request.slots)
    asked = {"forgotten": problem.rows.at(request.slots), "retained": problem.rows.at(kept), "test": problem.test}
    stages = {
        "before": models.members[Method.NOTHING],
        "fine-tuned": models.members[Method.FINE_TUNING],
        "unlearned": models.members[Method.UNLEARNING],
        "retrained": models.retrained,
    }
    return {
        name: {stage: asdict(remembered.of(parameters, rows)) for stage, parameters in stages.items()}
        for name, rows in asked.items()
    }
