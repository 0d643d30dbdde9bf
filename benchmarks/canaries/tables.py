"""The tables and the figure of docs/evidence/canaries.md."""

from pathlib import Path

from benchmarks import page
from benchmarks.canaries.finding import ALL_CHANGED, TESTS
from benchmarks.canaries.plans import DEFAULT, IN_BATCHES, LANES, Row

RUNS = ("forgetting", "learning", "forgetting" + IN_BATCHES, "learning" + IN_BATCHES)


def tables(results: Row) -> dict[str, str]:
    return {
        **{run: _found(results, run) for run in RUNS},
        **{f"tests, {run}": _by_test(results, run) for run in RUNS if run.startswith("forgetting")},
        "alarms": page.table(
            ["run", "lanes", "tests", "allowed", "alarms"],
            [
                [row["run"], row["lanes"], row["audits"], _percent(row["allowed"], 2), _percent(row["alarms"], 2)]
                for row in results["alarms"]
            ],
        ),
        "chain": page.table(
            ["planted in the code", "runs each", *RUNS],
            [
                [
                    row["fault"],
                    row["audits"],
                    *(_percent(row[run]) if run in row else None for run in RUNS),
                ]
                for row in results["in_the_chain"]
            ],
        ),
        "proved": page.table(
            ["run", "lanes", "median", "5 to 95 %", "false"],
            [
                [
                    row["run"],
                    row["lanes"],
                    f"{row['median']:.2f}",
                    f"{row['low']:.2f} to {row['high']:.2f}",
                    f"{row['wrong']:.1e}" if row["wrong"] else "0",
                ]
                for row in results["proved"]
            ],
        ),
        "cost": page.table(
            [
                "rows x columns",
                "rows a step",
                "steps",
                "chain, ms",
                *(f"test of {number} lanes, ms" for number in (64, DEFAULT, 1024)),
                f"share of {DEFAULT}",
            ],
            [
                [
                    f"{row['rows']:,} x {row['columns']}",
                    row["batch"],
                    row["steps"],
                    _milliseconds(row["seconds"]),
                    *(_milliseconds(row["audit_seconds"][str(number)]) for number in (64, DEFAULT, 1024)),
                    _percent(row["audit_seconds"][str(DEFAULT)] / row["seconds"], 1),
                ]
                for row in results["chain"]
            ],
        ),
        "run": page.table(
            ["whole run", "steps", "runs of each", "without, ms", "tested, ms", "more"],
            [
                [
                    f"{run['rows']:,} rows",
                    run["steps"],
                    run["rounds"],
                    _milliseconds(run["without"]),
                    _milliseconds(run["audited"]),
                    _percent(run["audited"] / run["without"] - 1, 1),
                ]
                for run in [results["run"]]
            ],
        ),
        "asked": page.table(
            ["asked for", "steps", "lanes", "CPU seconds"],
            [[row["shape"], row["steps"], row["lanes"], f"{row['seconds']:.1f}"] for row in results["asked"]],
        ),
    }


def _found(results: Row, run: str) -> str:
    rows = {(row["fault"], row["lanes"]): row["any"] for row in results["found"] if row["run"] == run}
    faults = [fault for fault in ALL_CHANGED if (fault, LANES[0]) in rows]
    heads = [run, *(f"{number:,} lanes" for number in LANES)]
    return page.table(heads, [[fault, *(_percent(rows[fault, number]) for number in LANES)] for fault in faults])


def _by_test(results: Row, run: str) -> str:
    rows = [row for row in results["found"] if (row["run"], row["lanes"]) == (run, DEFAULT)]
    return page.table(
        [f"{DEFAULT} lanes, {run}", *TESTS], [[row["fault"], *(_percent(row[name]) for name in TESTS)] for row in rows]
    )


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def draw(results: Row, folder: Path) -> None:
    drawn = page.figure(7.6, 4.0)
    left, right = drawn.subplots(1, 2)
    batched = "forgetting" + IN_BATCHES
    shown = ("noise x 0.9", "noise x 0.7", "canary not removed", "90 % of the steps", "order reversed")
    for fault, marker in zip(shown, "osD^v", strict=True):
        rows = [row for row in results["found"] if (row["run"], row["fault"]) == (batched, fault)]
        left.plot(
            [row["lanes"] for row in rows], [100 * row["any"] for row in rows], marker=marker, label=fault, alpha=0.85
        )
    left.set(xscale="log", xlabel="lanes", ylabel="found by one canary test, %", ylim=(-3, 103))
    drawn.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=3, title="fault")
    for run, marker in (("forgetting", "o"), (batched, "s")):
        rows = [row for row in results["proved"] if row["run"] == run]
        number = [row["lanes"] for row in rows]
        [line] = right.plot(number, [row["median"] for row in rows], marker=marker, label=f"{run}, median")
        right.fill_between(
            number, [row["low"] for row in rows], [row["high"] for row in rows], color=line.get_color(), alpha=0.2
        )
    right.axhline(1, color="black", linewidth=0.8, linestyle="--", label="certified")
    right.set(xscale="log", xlabel="lanes", ylabel="lower bound over certified mu", ylim=(0, 1.1))
    right.legend(loc="lower right")
    for axes in (left, right):
        axes.set_xticks(LANES, ["64", "256", "1,024", "4,096"])
        axes.minorticks_off()
    page.save(drawn, "canaries", folder)
