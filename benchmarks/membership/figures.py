"""The figures of docs/evidence/membership.md, from the JSON."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri

from benchmarks import page
from benchmarks.membership.tables import ENTRIES
from benchmarks.page import COLOURS

_COLOURS = dict(zip(("unlearning", "nothing", "retrained", "fine-tuning"), (*COLOURS[:3], COLOURS[4]), strict=True))
_MARKS = {"nothing": "o", "fine-tuning": "s", "unlearning": "D"}
_MEANING = {"nothing": "doing nothing", "fine-tuning": "fine-tuning without noise", "unlearning": "unlearning"}


def draw(results: dict[str, Any], folder: Path) -> None:
    for name, drawing in {"": bounds, "-roc": rates, "-epsilon-hat": hats}.items():
        page.save(drawing(results), f"membership{name}", folder)


def bounds(results: dict[str, Any]) -> Figure:
    """What the attack finds and what it proves, and what is certified after unlearning, per request."""
    named = [
        (f"{problem['name']}, {name}", answers["attack"])
        for problem in results["problems"]
        for name, answers in problem["requests"].items()
    ]
    figure = page.figure(6.4, 0.36 * len(named) + 1.2)
    axes = figure.add_subplot()
    places = np.arange(len(named))[::-1]
    for method, mark in _MARKS.items():
        shift = {"nothing": 0.22, "fine-tuning": 0.0, "unlearning": -0.22}[method]
        proved, found = ([attack[method][name] for _, attack in named] for name in ("mu_at_least", "separation"))
        axes.hlines(places + shift, proved, found, color=_COLOURS[method], lw=0.8)
        axes.plot(proved, places + shift, mark, color=_COLOURS[method], label=_MEANING[method], ms=5)
        axes.plot(found, places + shift, mark, color=_COLOURS[method], mfc="white", ms=4)
    certified = [attack["unlearning"]["certified_mu"] for _, attack in named]
    axes.plot(certified, places, "|", color="black", ms=16, mew=2, label="certificate of unlearning")
    axes.set_yticks(places, labels=[name for name, _ in named])
    axes.set(xlabel="mu: filled, proved at least; hollow, estimated", xlim=(-0.05, None))
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return figure


def rates(results: dict[str, Any]) -> Figure:
    """Receiver operating characteristics for the group of the first problem, and what its certificate allows."""
    answers = results["problems"][0]["requests"]["group"]["attack"]
    figure = page.figure(4.4, 4)
    axes = figure.add_subplot()
    for method, meaning in _MEANING.items():
        curve = answers[method]["roc"]
        axes.step(curve["false"], curve["true"], color=_COLOURS[method], label=meaning, where="pre")
    false = np.geomspace(1e-4, 1, 200)
    allowed = ndtr(ndtri(false) + answers["unlearning"]["certified_mu"])
    axes.plot(false, allowed, "k--", label="most that the certificate allows")
    axes.plot(false, false, color="0.6", lw=0.8, label="chance")
    axes.set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-3, 1))
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    axes.legend(frameon=False, loc="lower right")
    return figure


def hats(results: dict[str, Any]) -> Figure:
    """epsilon-hat of the forgotten rows under every law, and its bias where the truth is known."""
    figure = page.figure(8, 3.4)
    rows, truth = figure.subplots(1, 2)
    _histograms(rows, results["competition"])
    _calibration(truth, results["calibration"])
    return figure


def _histograms(axes: Axes, entries: dict[str, Any]) -> None:
    edges = [0.25 * edge for edge in range(33)]
    for entry, meaning in ENTRIES.items():
        found = np.clip(entries[entry]["epsilon_hats"], 0, edges[-1])
        share = np.full(len(found), 1 / len(found))
        axes.hist(found, edges, weights=share, histtype="stepfilled", alpha=0.35, color=_COLOURS[entry])
        axes.hist(found, edges, weights=share, histtype="step", color=_COLOURS[entry], label=meaning)
    axes.set(xlabel="epsilon-hat of a forgotten row (nats)", ylabel="share of rows")
    axes.margins(y=0.35)
    axes.legend(frameon=False, loc="upper right")


def _calibration(axes: Axes, calibration: list[dict[str, Any]]) -> None:
    true = np.array([found["true_epsilon"] for found in calibration])
    hat, proved = ([found[name] for found in calibration] for name in ("epsilon_hat", "epsilon_at_least"))
    for spread, colour, label in ((hat, COLOURS[1], "epsilon-hat"), (proved, COLOURS[0], "lower bound")):
        means, lows, highs = ([one[name] for one in spread] for name in ("mean", "low", "high"))
        axes.vlines(true, lows, highs, color=colour, lw=1)
        axes.plot(true, means, "o-", ms=4, color=colour, label=label)
    axes.plot(true, true, "k--", lw=0.8, label="true")
    axes.set(xlabel="true epsilon (nats)", ylabel="mean, 5 % to 95 % (nats)")
    axes.legend(frameon=False)
