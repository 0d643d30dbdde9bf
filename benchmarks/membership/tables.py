"""The tables of docs/evidence/membership.md, as they follow from the JSON; a test compares them."""

import math
from collections.abc import Iterator
from typing import Any

from benchmarks.page import table

ENTRIES = {
    "retrained": "retrained, two halves",
    "unlearning": "unlearned",
    "fine-tuning": "fine-tuned without noise",
    "nothing": "as they were",
}
_STAGES = ("before", "fine-tuned", "unlearned", "retrained")


def attacks(results: dict[str, Any]) -> str:
    rows = []
    for problem, answers in _requests(results):
        methods = answers["attack"]
        certified = (methods[method]["certified_mu"] for method in ("nothing", "unlearning"))
        measured = (
            f"{methods[method]['separation']:.2f}, {_down(methods[method]['mu_at_least'])}"
            for method in ("nothing", "fine-tuning", "unlearning")
        )
        named = f"{problem['name']}, {answers['name']}"
        numbers = answers["rows"], answers["steps"], f"{answers['foreseen_mu']:.2f}"
        rows.append((named, *numbers, *measured, *map(_up, certified)))
    heading = (
        "rows of",
        "rows",
        "steps",
        "foreseen",
        "nothing",
        "fine-tuning",
        "unlearning",
        "certified: nothing",
        "unlearning",
    )
    return table(heading, rows)


def competition(results: dict[str, Any]) -> str:
    rows = []
    for entry, meaning in ENTRIES.items():
        found = results["competition"][entry]
        certified = found["certified_epsilon"]
        rows.append(
            (
                meaning,
                *_hats(found),
                _proved(found),
                None if certified is None else _up(certified),
            )
        )
    return table(("models", *_HATS, "proved: mean, greatest", "certified"), rows)


def calibration(results: dict[str, Any]) -> str:
    rows = [
        (
            f"{found['mu']:g}",
            f"{found['true_epsilon']:.2f}",
            *_hats(found),
            _proved(found),
        )
        for found in results["calibration"]
    ]
    return table(("mu", "true epsilon", *_HATS, "proved: mean, greatest"), rows)


def forgotten(results: dict[str, Any]) -> str:
    """Mean losses on the forgotten rows, with the standard error of the difference that matters."""
    rows = []
    for problem, answers in _requests(results):
        recalls = answers["remembered"]["forgotten"]
        unlearned, retrained, models = recalls["unlearned"], recalls["retrained"], answers["models"]
        apart = unlearned["loss"] - retrained["loss"]
        error = math.hypot(unlearned["loss_std"], retrained["loss_std"]) / math.sqrt(models)
        losses = (f"{recalls[stage]['loss']:.3f}" for stage in _STAGES)
        accuracies = (f"{recalls[stage]['accuracy']:.1%}" for stage in ("before", "unlearned", "retrained"))
        named = f"{problem['name']}, {answers['name']}"
        rows.append((named, *losses, f"{apart:+.3f} ± {error:.3f}", *accuracies))
    heading = ("rows of", *(f"loss {stage}" for stage in _STAGES), "unlearned - retrained")
    return table((*heading, "right before", "unlearned", "retrained"), rows)


def remembered(results: dict[str, Any]) -> str:
    """Accuracies and losses on the rows that stay and on the test."""
    rows = []
    for problem, answers in _requests(results):
        named = f"{problem['name']}, {answers['name']}"
        cells = (
            f"{recall['accuracy']:.2%}, {recall['loss']:.3f}"
            for name in ("retained", "test")
            for recall in (answers["remembered"][name][stage] for stage in ("before", "unlearned", "retrained"))
        )
        rows.append((named, *cells))
    heading = ("rows of", "retained: before", "unlearned", "retrained", "test: before", "unlearned", "retrained")
    return table(heading, rows)


ALL = (attacks, competition, calibration, forgotten, remembered)
_HATS = ("epsilon-hat: mean", "5 % to 95 %", "score", "one threshold: mean", "score")


def _hats(found: dict[str, Any]) -> Iterator[str]:
    hat, single = found["epsilon_hat"], found["one_threshold"]
    yield from (f"{hat['mean']:.2f}", f"{hat['low']:.2f} to {hat['high']:.2f}", f"{hat['score']:.3f}")
    yield from (f"{single['mean']:.2f}", f"{single['score']:.3f}")


def _proved(found: dict[str, Any]) -> str:
    return f"{_down(found['epsilon_at_least']['mean'])}, {_down(found['epsilon_at_least']['greatest'])}"


def _requests(results: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for problem in results["problems"]:
        for name, answers in problem["requests"].items():
            yield problem, answers | {"name": name}


def _up(certified: float) -> str:
    return f"{math.ceil(100 * certified) / 100:.2f}"


def _down(proved: float) -> str:
    return f"{math.floor(100 * proved) / 100:.2f}"
