"""Figures of the page: what was measured against what the certificate allows."""

from typing import Any

from matplotlib.figure import Figure

from benchmarks import page

OURS, FLAWED, _, FLAG, REFUTED = page.COLOURS[:5]

_ROWS = (
    ("the median (3.1)", "median", "median, one release"),
    ("the sum (eqs. 7, 8)", "sum", "sum, one release"),
    ("a secret counter, 8 releases (3.2)", "counter, 8", "counter, 8"),
    ("a secret flag, 8 releases (3.2)", "flag, 8", None),
    ("a pad over two releases (4.1)", "pad, two releases", "pad, all releases"),
    ("a pad and a requester (4.3)", "parity, adaptive", "parity, one release"),
    ("shards", "shards, presence", "digits, one release"),
)


def attacks(results: dict[str, Any]) -> Figure:
    """Every attack on the mechanism it was made for, and on ours beside what certificates allow."""
    figure = page.figure(7.4, 3.8)
    axes = figure.add_subplot()
    for height, (_, broken, ours) in enumerate(reversed(_ROWS)):
        _point(axes, results["flawed"][broken], height + 0.13, FLAWED, "s", "on the flawed mechanism")
        if ours is None:
            continue
        found = results["ours"][ours]
        _point(axes, found, height - 0.13, OURS, "o", "on ours")
        for notion, color in (("adaptive", OURS), ("deletion", REFUTED)):
            style: dict[str, Any] = {"markersize": 11, "markeredgewidth": 2, "label": f"what `{notion}` allows"}
            axes.plot(found[f"{notion}_allows"], height - 0.13, "|", color=color, **style)
    axes.set_yticks(range(len(_ROWS)), labels=[name for name, *_ in reversed(_ROWS)])
    axes.axvline(0, color="#000000", linewidth=0.6)
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="advantage: true minus false positive rate", xlim=(-0.12, 1.05))
    _legend(axes, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4)
    return figure


def releases(results: dict[str, Any]) -> Figure:
    """What more releases after the deletion add, of a service that keeps a state and of ours."""
    figure = page.figure(6.5)
    axes = figure.add_subplot()
    lines = (
        ("flag", results["flawed"], FLAG, "^", "a secret flag"),
        ("counter", results["flawed"], FLAWED, "s", "the counter of Theorem 3.2"),
        ("counter", results["ours"], OURS, "o", "ours"),
    )
    for name, found, color, marker, label in lines:
        seen = [key for key in found if key.startswith(f"{name}, ")]
        counts = [int(key.split(", ")[1]) for key in seen]
        axes.plot(counts, [found[key]["advantage"] for key in seen], color=color, linewidth=0.8)
        for count, key in zip(counts, seen, strict=True):
            _upright(axes, found[key], count, color, marker, label)
    limit = results["counter"]["divided_never_above"]
    axes.axhline(limit, color=FLAWED, linestyle=":", label="the counter never exceeds")
    allows = results["ours"]["counter, 1"]["deletion_allows"]
    axes.axhline(allows, color=OURS, linestyle="--", label="what `deletion` allows")
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], labels=["1", "2", "4", "8", "16", "32", "64"])
    axes.set(xlabel="releases seen after the deletion", ylabel="advantage", ylim=(-0.12, 1.05))
    _legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _point(axes: Any, found: dict[str, Any], height: float, color: str, marker: str, label: str) -> None:
    middle = found["advantage"]
    reach = [[middle - found["low"]], [found["high"] - middle]]
    axes.errorbar(middle, height, xerr=reach, fmt=marker, color=color, markersize=4, capsize=2, label=label)


def _upright(axes: Any, found: dict[str, Any], count: int, color: str, marker: str, label: str) -> None:
    middle = found["advantage"]
    reach = [[middle - found["low"]], [found["high"] - middle]]
    axes.errorbar(count, middle, yerr=reach, fmt=marker, color=color, markersize=4, capsize=2, label=label)


def _legend(axes: Any, **where: Any) -> None:
    """Every label once."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(once.values(), once.keys(), frameon=False, **where)
