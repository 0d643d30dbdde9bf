"""The tables of docs/evidence/rivals.md, from the results."""

from typing import Any

from benchmarks import page


def promises(results: dict[str, Any]) -> str:
    """What each rival claims, in words."""
    said = {
        row["title"]: problem["claims"][row["rival"]] for problem in results["problems"] for row in problem["rivals"]
    }
    heads = ("rival", "guarantee", "compared with", "neighbours", "adaptive requests", "kept in secret")
    fields = ("guarantee", "compared_with", "adjacency", "adaptive", "secret")
    return page.table(heads, ((title, *(claim[field] for field in fields)) for title, claim in said.items()))


REFITS = {
    "lbfgs_shipped_l2": "refit, same l2",
    "lbfgs_c1": "refit, C = 1",
    "warm_shipped_l2": "warm start, same l2",
}


def against_refits(results: dict[str, Any]) -> str:
    """Medians of one request, and how many times ours."""
    heads = ("", *(f"{what}: {who}" for what in ("passes", "seconds") for who in ("ours as shipped", *REFITS.values())))
    return page.table(heads, (_against_refits(problem) for problem in results["problems"]))


def _against_refits(problem: dict[str, Any]) -> tuple[str, ...]:
    rows = {row["rival"]: row for row in problem["rivals"]}
    ours, cells = rows["langevin_shipped"], [problem["name"]]
    for what, printed in (("passes", passes), ("seconds", "{:.2g}".format)):
        cells.append(printed(ours[what]))
        cells += (f"{printed(rows[name][what])} ({rows[name][what] / ours[what]:.2g})" for name in REFITS)
    return tuple(cells)


def costs(problem: dict[str, Any]) -> str:
    heads = (
        "rival",
        "l2",
        "requests",
        "passes",
        "most",
        "seconds",
        "learning, s",
        "accuracy, %",
        "epsilon",
        "adaptive epsilon",
    )
    return page.table(heads, (_cost(row) for row in problem["rivals"]))


def _cost(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["title"],
        f"{row['l2']:.2g}",
        row["requests"],
        passes(row["passes"]),
        passes(row["most_passes"]),
        f"{row['seconds']:.2g}",
        f"{row['learn_seconds']:.2g}",
        f"{100 * row['accuracy']:.2f}",
        number(row["epsilon"]),
        number(row["adaptive_epsilon"]),
    )


def passes(number: float) -> str:
    """To three digits at least.

    >>> passes(2.123), passes(1461.5)
    ('2.12', '1,462')
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def audits(results: dict[str, Any]) -> str:
    heads = (
        "rival",
        "certified epsilon",
        "after: epsilon >=",
        "after: mu >=",
        "certified adaptive epsilon",
        "both: epsilon >=",
        "both: mu >=",
    )
    return page.table(heads, (_audit(row) for row in results["audit"]["rivals"]))


def _audit(row: dict[str, Any]) -> tuple[str, ...]:
    told = {question: (number(row[question]["epsilon"]), number(row[question]["mu"])) for question in ("after", "both")}
    certified = number(row["certified_epsilon"]), number(row["certified_adaptive_epsilon"])
    return row["title"], certified[0], *told["after"], certified[1], *told["both"]


def margins(results: dict[str, Any]) -> str:
    heads = (
        "rival",
        "certified epsilon",
        "KLoM, forgotten",
        "KLoM, kept",
        "KLoM, test",
        "U-LiRA: separation",
        "U-LiRA: mu >=",
    )
    return page.table(heads, (_margins(row) for row in results["margins"]["rivals"]))


def _margins(row: dict[str, Any]) -> tuple[str, ...]:
    found = (number(row[name]) for name in ("forgotten", "kept", "test", "separation", "mu"))
    return row["title"], number(row["certified_epsilon"]), *found


def number(value: float | str | None) -> str:
    match value:
        case None:
            return "none"
        case str():
            return "infinite"
        case _:
            return f"{value:.3f}" if value < 100 else f"{value:,.0f}"


def all_of(results: dict[str, Any]) -> str:
    """Everything, as it is printed and as the page has it."""
    parts = [promises(results), against_refits(results)]
    for problem in results["problems"]:
        parts += [f"{problem['name']}: {problem['rows']:,} rows, delta = {problem['delta']:.2g}", costs(problem)]
    return "\n\n".join([*parts, f"Audit: {results['audit']['name']}", audits(results), "Margins", margins(results)])
