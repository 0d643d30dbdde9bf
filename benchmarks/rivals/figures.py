"""The two figures: seconds against accuracy, and what is certified against what an audit proves."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from benchmarks import page

KINDS = {
    "adaptive": ("o", page.COLOURS[0], "certified, also against adaptive requests"),
    "certified": ("s", page.COLOURS[1], "certified, requests fixed in advance"),
    "exact": ("^", page.COLOURS[2], "exact retraining, nothing about earlier versions"),
    "none": ("X", page.COLOURS[6], "no guarantee"),
}
_INFINITE = 30.0  # where an arrow stands for it
_LEFT_OUT = ("random", "nothing_chain", "nothing_fit")  # they take no time


def kind(claim: dict[str, str]) -> str:
    return "adaptive" if claim["adaptive"].startswith("yes") else claim["kind"]


def draw(results: dict[str, Any], folder: Path) -> None:
    _seconds(results["problems"], folder)
    _audited(results, folder)


def _seconds(problems: list[dict[str, Any]], folder: Path) -> None:
    columns = 2
    lines = -(-(len(problems) + 1) // columns)
    drawn = page.figure(7.2, 2.7 * lines)
    panels = drawn.subplots(lines, columns, squeeze=False).ravel()
    numbers = {title: number for number, title in enumerate(_titles(problems), start=1)}
    for axes, problem in zip(panels, problems, strict=False):
        _panel(axes, problem, numbers)
    for spare in panels[len(problems) :]:
        spare.set_axis_off()
    key = panels[len(problems)]
    names = "\n".join(f"{number}  {title}" for title, number in numbers.items())
    key.text(0, 1, names, va="top", fontsize=6.5, transform=key.transAxes)
    marks = [
        key.plot([], [], marker, color=colour, linestyle="", label=label)[0] for marker, colour, label in KINDS.values()
    ]
    drawn.legend(handles=marks, loc="outside lower center", ncols=2, frameon=False)
    page.save(drawn, "rivals-seconds", folder)


def _titles(problems: list[dict[str, Any]]) -> list[str]:
    titles = [row["title"] for problem in problems for row in problem["rivals"] if row["rival"] not in _LEFT_OUT]
    return list(dict.fromkeys(titles))


def _panel(axes: Axes, problem: dict[str, Any], numbers: dict[str, int]) -> None:
    shown = sorted(
        (row for row in problem["rivals"] if row["rival"] not in _LEFT_OUT), key=lambda row: float(row["seconds"])
    )
    for place, row in enumerate(shown):
        marker, colour, _ = KINDS[kind(problem["claims"][row["rival"]])]
        axes.plot(row["seconds"], 100 * row["accuracy"], marker, color=colour, markersize=5)
        axes.annotate(
            str(numbers[row["title"]]),
            (row["seconds"], 100 * row["accuracy"]),
            xytext=(0, (5, -11, 12, -18)[place % 4]),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
    accuracies = sorted(100 * row["accuracy"] for row in shown)
    axes.set_xscale("log")
    axes.margins(0.1, 0.25)
    label = f"{problem['name']}: accuracy, %"
    axes.set(xlabel="seconds per request, median", ylabel=label)
    if accuracies[0] < accuracies[-1] - 20:  # one that has lost the data would flatten the others
        axes.set_ylim(min(a for a in accuracies if a > accuracies[-1] - 20) - 3, accuracies[-1] + 2)


def _audited(results: dict[str, Any], folder: Path) -> None:
    claims = {name: claim for problem in results["problems"] for name, claim in problem["claims"].items()}
    rivals = results["audit"]["rivals"][::-1]
    drawn = page.figure(7.2, 4.4)
    panels = drawn.subplots(1, 2, sharey=True)
    questions = (
        ("after", "certified_epsilon", "after the request"),
        ("both", "certified_adaptive_epsilon", "of both versions"),
    )
    for axes, (question, certified, label) in zip(panels, questions, strict=True):
        for height, row in enumerate(rivals):
            _, colour, _ = KINDS[kind(claims[row["rival"]])]
            _dot(axes, height, row[question]["epsilon"], row[certified], colour)
        axes.set_xscale("symlog", linthresh=0.5)
        axes.set_xlim(-0.05, 1.6 * _INFINITE)
        axes.set_xticks([0, 0.5, 1, 3, 10, _INFINITE], labels=["0", "0.5", "1", "3", "10", "inf"])
        axes.minorticks_off()
        axes.set_xlabel(f"epsilon {label}")
    panels[0].set_yticks(range(len(rivals)), labels=[row["title"] for row in rivals])
    panels[0].plot([], [], "|", color="black", markersize=10, markeredgewidth=2, label="certified: at most")
    panels[0].plot([], [], ">", color="grey", label="audited: at least")
    drawn.legend(loc="outside lower center", ncols=2, frameon=False)
    page.save(drawn, "rivals-audit", folder)


def _dot(axes: Axes, height: int, proved: float | str, certified: float | None, colour: str) -> None:
    at = _INFINITE if proved == "inf" else float(proved)
    axes.plot([0, at], [height, height], color=colour, linewidth=1)
    axes.plot(at, height, ">", color=colour, markersize=5)
    if certified is not None:
        axes.plot(certified, height, "|", color="black", markersize=10, markeredgewidth=2)
