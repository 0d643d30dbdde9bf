"""The paper's figures, with its curve recomputed and ours beside it."""

from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks import page
from benchmarks.page import COLOURS
from benchmarks.paper.printed import BATCHES, MNIST, REMOVED, RETRAINING_STEPS, TABLE_3

Row = dict[str, Any]
PAPER, OURS, OTHER, THIRD = COLOURS[1], COLOURS[0], COLOURS[2], COLOURS[3]
REPLACE = COLOURS[5]
DASHES = ("-", "--", ":")


def draw(results: Row, data: str, folder: Path) -> None:
    """`data`: whose accuracy is shown."""
    measured = results["accuracy"][data]
    page.save(table_3(results["table_3"]), "paper-table-3", folder)
    page.save(figure_3a(measured["figure_3a"], measured["noiseless"]), "paper-3a", folder)
    page.save(figure_3b(results["figure_3b"]), "paper-3b", folder)
    page.save(figure_3c(results["figure_3c"], measured["figure_3c"]), "paper-3c", folder)
    page.save(figure_4(results["figure_4"]), "paper-4", folder)
    page.save(figure_5(results["figure_5"], measured["figure_5"]), "paper-5", folder)


def table_3(rows: list[Row]) -> Any:
    drawn = page.figure(8.0, 2.8)
    for axes, name in zip(drawn.subplots(1, len(TABLE_3), sharey=True), TABLE_3, strict=True):
        mine = [row for row in rows if row["problem"] == name]
        epsilons = [row["epsilon"] for row in mine]
        axes.loglog(epsilons, [row["printed"] for row in mine], "x", color="black", label="printed")
        axes.loglog(epsilons, [row["recomputed"] for row in mine], color=PAPER, label="paper's bound, recomputed")
        axes.loglog(epsilons, [row["ours_replace"] for row in mine], "--", color=REPLACE, label="ours, replace")
        axes.loglog(epsilons, [row["ours"] for row in mine], color=OURS, label="ours")
        axes.set_xlabel(f"ε ({name})")
    drawn.axes[0].set_ylabel("least noise σ, one record, one step")
    drawn.axes[0].legend(frameon=False)
    return drawn


def figure_3a(rows: list[Row], noiseless: float) -> Any:
    drawn = page.figure(6.5, 4.2)
    axes = drawn.subplots()
    ways = {"d2d": ("Descent-to-Delete", OTHER), "paper": ("paper's noise", PAPER), "ours": ("our noise", OURS)}
    for way, (label, colour) in ways.items():
        for steps, dashes in zip((1, 2, 5), DASHES, strict=True):
            mine = [row for row in rows if row["steps"] == steps]
            axes.errorbar(
                [row["epsilon"] for row in mine],
                [row[way]["accuracy"] for row in mine],
                [row[way]["std"] for row in mine],
                linestyle=dashes,
                color=colour,
                elinewidth=0.5,
                label=f"{label}, {steps} step{'s' * (steps > 1)}",
            )
    axes.axhline(noiseless, color="black", linewidth=0.8, linestyle="-.", label="no noise")
    axes.set_xscale("log")
    axes.set(xlabel="target ε, one record", ylabel="test accuracy")
    drawn.legend(frameon=False, ncols=4, fontsize=6.5, loc="outside lower center")
    return drawn


def figure_3b(rows: list[Row]) -> Any:
    drawn = page.figure(6.5, 4.2)
    axes = drawn.subplots()
    mine = {row["batch"]: row for row in rows if row["problem"] == MNIST.name}
    ways = {"paper": ("paper", PAPER), "ours_replace": ("ours, replace", REPLACE), "ours": ("ours", OURS)}
    for way, (label, colour) in ways.items():
        for batch, dashes in zip(BATCHES, DASHES, strict=True):
            counts = list(accumulate(mine[batch][way]))
            gone = [batch * request for request in range(1, len(counts) + 1)]
            axes.semilogy(gone, counts, dashes, color=colour, label=f"{label}, {batch} at a time")
            if way == "paper":
                axes.semilogy(REMOVED, mine[batch]["stored_total"], "x", color="black")
    axes.semilogy(REMOVED, mine[1]["stored_total"], "+", color="black", markersize=8)
    axes.semilogy(range(1, REMOVED + 1), list(accumulate(mine[1]["d2d"])), color=OTHER, label="D2D, 1 at a time")
    axes.plot([], [], "x", color="black", linestyle="", label="their stored totals (+: D2D)")
    axes.axhline(RETRAINING_STEPS, color="grey", linewidth=0.8, linestyle="-.", label="one retraining, by the paper")
    axes.set(xlabel="records removed", ylabel="steps in all")
    drawn.legend(frameon=False, ncols=4, fontsize=6.5, loc="outside lower center")
    return drawn


def figure_3c(rows: list[Row], measured: list[Row]) -> Any:
    drawn = page.figure(7.0, 3.2)
    steps, shares = drawn.subplots(1, 2)
    sigmas = [row["sigma"] for row in rows]
    steps.loglog(sigmas, [row["paper_on_grid"] for row in rows], "x", color="black", label="paper, as its code counts")
    steps.loglog(sigmas, [row["paper"] for row in rows], color=PAPER, label="paper's bound")
    steps.loglog(sigmas, [row["ours_replace"] for row in rows], "--", color=REPLACE, label="ours, replace")
    steps.loglog(sigmas, [row["ours"] for row in rows], color=OURS, label="ours")
    steps.set(xlabel="noise σ", ylabel="steps, 100 records to ε = 1")
    steps.legend(frameon=False)
    names = {"learned": ("learned", THIRD), "relearned": ("learned again", OTHER), "ours": ("unlearned", OURS)}
    for name, (label, colour) in names.items():
        shares.errorbar(
            [row["sigma"] for row in measured],
            [row[name]["accuracy"] for row in measured],
            [row[name]["std"] for row in measured],
            color=colour,
            elinewidth=0.5,
            label=label,
        )
    shares.set_xscale("log")
    shares.set(xlabel="noise σ", ylabel="test accuracy")
    shares.legend(frameon=False)
    return drawn


def figure_4(rows: list[Row]) -> Any:
    drawn = page.figure(6.5, 4.2)
    axes = drawn.subplots()
    for removed, dashes in zip((100, 50, 1), DASHES, strict=True):
        mine = [row for row in rows if row["removed"] == removed]
        epsilons = [row["epsilon"] for row in mine]
        label = f"{removed} record{'s' * (removed > 1)}"
        axes.loglog(epsilons, [row["paper_measured_on_grid"] for row in mine], "x", color="black", markersize=4)
        axes.loglog(epsilons, [row["paper"] for row in mine], dashes, color=PAPER, label=f"paper, {label}")
        axes.loglog(
            epsilons, [row["ours_replace"] for row in mine], dashes, color=REPLACE, label=f"ours, replace, {label}"
        )
        axes.loglog(epsilons, [row["ours"] for row in mine], dashes, color=OURS, label=f"ours, {label}")
    axes.plot([], [], "x", color="black", linestyle="", label="paper, as its code counts")
    axes.axhline(RETRAINING_STEPS, color="grey", linewidth=0.8, linestyle="-.", label="one retraining, by the paper")
    axes.set(xlabel="target ε", ylabel="steps, σ = 0.03")
    drawn.legend(frameon=False, ncols=4, fontsize=6.5, loc="outside lower center")
    return drawn


def figure_5(rows: list[Row], measured: list[Row]) -> Any:
    drawn = page.figure(7.0, 3.6)
    steps, shares = drawn.subplots(1, 2)
    for epsilon, dashes in zip((0.5, 1.0, 2.0), DASHES, strict=True):
        mine = [row for row in rows if row["epsilon"] == epsilon]
        removed = [row["removed"] for row in mine]
        steps.loglog(removed, [row["paper"] for row in mine], dashes, color=PAPER, label=f"paper, ε = {epsilon:g}")
        steps.loglog(removed, [row["ours_replace"] for row in mine], dashes, color=REPLACE)
        steps.loglog(removed, [row["ours"] for row in mine], dashes, color=OURS, label=f"ours, ε = {epsilon:g}")
        if f"{epsilon:g}" in measured[0]["steps"]:
            found = [row["unlearned"][f"{epsilon:g}"]["accuracy"] for row in measured]
            shares.semilogx([row["removed"] for row in measured], found, dashes, color=OURS, label=f"ε = {epsilon:g}")
    steps.plot([], [], color=REPLACE, label="ours, replace")
    steps.set(xlabel="records at once", ylabel="steps, σ = 0.03")
    drawn.legend(*steps.get_legend_handles_labels(), frameon=False, ncols=4, fontsize=6.5, loc="outside lower left")
    shares.errorbar(
        [row["removed"] for row in measured],
        [row["relearned"]["accuracy"] for row in measured],
        [row["relearned"]["std"] for row in measured],
        color=OTHER,
        elinewidth=0.5,
        label="learned again",
    )
    shares.set_xscale("log")
    shares.set(xlabel="records at once", ylabel="test accuracy")
    shares.legend(frameon=False)
    return drawn
