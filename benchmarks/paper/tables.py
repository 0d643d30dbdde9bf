"""The tables of docs/evidence/paper.md, made of the results: the page holds them word for word, and a test says so."""

from typing import Any

from benchmarks.page import table
from benchmarks.paper.printed import MNIST

Row = dict[str, Any]


def all_of(results: Row) -> dict[str, str]:
    found = {
        "table 2": table_2(results["table_2"]),
        "table 3": table_3(results["table_3"]),
        "figure 3b": figure_3b(results["figure_3b"]),
        "figure 3c": figure_3c(results["figure_3c"]),
        "figure 4": figure_4(results["figure_4"]),
        "figure 5": figure_5(results["figure_5"]),
        "tightenings": table(("change", "steps"), [(row["change"], row["steps"]) for row in results["tightenings"]]),
    }
    for data, measured in results["accuracy"].items():
        found |= {
            f"figure 3a, {data}": accuracy_3a(measured["figure_3a"]),
            f"figure 3b, {data}": accuracy_3b(measured["figure_3b"]),
            f"figure 3c, {data}": accuracy_3c(measured["figure_3c"]),
            f"figure 4, {data}": accuracy_4(measured["figure_4"]),
            f"figure 5, {data}": accuracy_5(measured["figure_5"]),
        }
    return found


def number(value: float | None, digits: int = 4) -> str | None:
    """Decimals as the paper prints them."""
    return None if value is None else f"{value:.{digits}f}"


def short(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def share(found: Row) -> str:
    return f"{found['accuracy']:.3f} ± {found['std']:.3f}"


def table_2(rows: list[Row]) -> str:
    heads = ("dataset", "steps", "ε", "printed", "recomputed", "with the stated L", "ours, replace", "ours")
    kept = [row for row in rows if row["problem"] == MNIST.name or row["epsilon"] == 1]
    return table(
        heads,
        [
            (
                row["problem"],
                row["steps"],
                f"{row['epsilon']:g}",
                number(row["printed"]),
                number(row["recomputed"]),
                number(row["stated_smoothness"]),
                number(row["ours_replace"]),
                number(row["ours"]),
            )
            for row in kept
        ],
    )


def table_3(rows: list[Row]) -> str:
    heads = ("dataset", "ε", "printed", "recomputed", "printed / recomputed", "ours, replace", "ours", "factor")
    return table(
        heads,
        [
            (
                row["problem"],
                f"{row['epsilon']:g}",
                f"{row['printed']:g}",
                number(row["recomputed"], 5),
                f"{row['printed'] / row['recomputed']:.4f}",
                number(row["ours_replace"], 5),
                number(row["ours"], 5),
                f"{row['recomputed'] / row['ours']:.1f}",
            )
            for row in rows
        ],
    )


def figure_3b(rows: list[Row]) -> str:
    heads = ("dataset", "batch", "stored", "with the measured L", "with the stated L", "ours, replace", "ours")
    return table(
        heads,
        [
            (
                row["problem"],
                "Descent-to-Delete, 1",
                row["stored_total"],
                row["d2d_measured_total"],
                row["d2d_total"],
                None,
                None,
            )
            if row["batch"] == 1
            else (
                row["problem"],
                row["batch"],
                row["stored_total"],
                row["paper_measured_total"],
                row["paper_total"],
                row["ours_replace_total"],
                row["ours_total"],
            )
            for row in rows
        ],
    )


def figure_3c(rows: list[Row]) -> str:
    heads = (
        "σ",
        "paper",
        "on its grid",
        "ours, replace",
        "ours",
        "ε before: printed",
        "paper",
        "ours, replace",
        "ours",
    )
    return table(
        heads,
        [
            (
                f"{row['sigma']:g}",
                row["paper"],
                row["paper_on_grid"],
                row["ours_replace"],
                row["ours"],
                row["printed_epsilon_0"] and f"about {row['printed_epsilon_0']:g}",
                *tuple(short(row[f"{way}_epsilon_0"]) for way in ("paper", "ours_replace", "ours")),
            )
            for row in rows
        ],
    )


def figure_4(rows: list[Row]) -> str:
    heads = ("records", "ε", "stored", "as the code counts", "paper, stated L", "ours, replace", "ours")
    return table(
        heads,
        [
            (
                row["removed"],
                f"{row['epsilon']:g}",
                row["stored"],
                row["paper_measured_on_grid"],
                row["paper"],
                row["ours_replace"],
                row["ours"],
            )
            for row in rows
        ],
    )


def figure_5(rows: list[Row]) -> str:
    heads = ("ε", "records", "as the code counts", "paper, stated L", "ours, replace", "ours")
    return table(
        heads,
        [
            (
                f"{row['epsilon']:g}",
                row["removed"],
                row["paper_measured_on_grid"],
                row["paper"],
                row["ours_replace"],
                row["ours"],
            )
            for row in sorted(rows, key=lambda row: row["epsilon"])
        ],
    )


def accuracy_3a(rows: list[Row]) -> str:
    heads = ("ε", "steps", "Descent-to-Delete", "paper's noise", "our noise")
    return table(
        heads,
        [
            (f"{row['epsilon']:g}", row["steps"], share(row["d2d"]), share(row["paper"]), share(row["ours"]))
            for row in rows
        ],
    )


def accuracy_3b(rows: list[Row]) -> str:
    heads = ("batch", "our steps", "before", "after a hundred")
    return table(heads, [(row["batch"], row["steps"], share(row["before"]), share(row["after"])) for row in rows])


def accuracy_3c(rows: list[Row]) -> str:
    heads = ("σ", "learned", "learned again without the hundred", "unlearned")
    return table(
        heads,
        [(f"{row['sigma']:g}", share(row["learned"]), share(row["relearned"]), share(row["ours"])) for row in rows],
    )


def accuracy_4(rows: list[Row]) -> str:
    heads = ("records", "ε", "paper's steps", "accuracy", "our steps", "accuracy")
    ours = {(row["removed"], row["epsilon"]): row for row in rows if row["way"] == "ours"}
    return table(
        heads,
        [
            (
                row["removed"],
                f"{row['epsilon']:g}",
                row["steps"],
                share(row),
                ours[row["removed"], row["epsilon"]]["steps"],
                share(ours[row["removed"], row["epsilon"]]),
            )
            for row in rows
            if row["way"] == "paper"
        ],
    )


def accuracy_5(rows: list[Row]) -> str:
    targets = list(rows[0]["steps"])
    heads = ("records", "learned again", *(f"unlearned, ε = {target}" for target in targets))
    return table(
        heads,
        [
            (row["removed"], share(row["relearned"]), *(share(row["unlearned"][target]) for target in targets))
            for row in rows
        ],
    )
