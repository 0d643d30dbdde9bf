"""The tables of docs/evidence/attacks.md, as they follow from the JSON; a test compares them."""

import math
from collections.abc import Callable
from typing import Any

from benchmarks import page

_EARLIER = ("median, every release", "digits, read")
"""Views of versions with the person in them, of which `deletion` says nothing."""
_HEADS = ("attacked", "attacker sees", "advantage", "lies between", "its guarantee allows")


def median(results: dict[str, Any]) -> str:
    rows = [
        _flawed(results, "median", "the median", "one release after the deletion", "0"),
        _ours(results, "median, one release", "one release after the deletion"),
        _ours(results, "median, every release", "every release since the first"),
    ]
    return page.table(_HEADS, rows)


def total(results: dict[str, Any]) -> str:
    rows = [
        _flawed(results, "sum", "the sum", "one release after the deletion", "0"),
        _ours(results, "sum, one release", "one release after the deletion"),
    ]
    return page.table(_HEADS, rows)


def counter(results: dict[str, Any]) -> str:
    loss = results["counter"]["loss"]
    rows = []
    for releases in loss:
        found = [results["flawed"][f"{name}, {releases}"] for name in ("counter", "flag")]
        found += [results["ours"].get(f"counter, {releases}")]
        between = (one and f"{_near(one['advantage'])} ({_between(one)})" for one in found)
        rows.append((releases, f"{loss[releases]:.2f}", *between))
    allows = results["ours"]["counter, 1"]["deletion_allows"]
    never = f"never above {_up(results['counter']['divided_never_above'])}"
    rows.append(("any number", "no limit", never, None, f"never above {_up(allows)} (`deletion`)"))
    return page.table(("releases", "the counter's loss", "counter", "flag", "ours"), rows)


def pad(results: dict[str, Any]) -> str:
    rows = [
        _flawed(results, "pad, one release", "the pad", "the last release", "0"),
        _flawed(results, "pad, two releases", "the pad", "the last two", "0 each"),
        _ours(results, "pad, first release", "the first release after the deletion"),
        _ours(results, "pad, all releases", "the three after the deletion"),
        ("ours", "the same, by Theorem 4.1", None, None, _up(results["theorem_4_5"]["theorem_4_1_allows"])),
    ]
    return page.table(_HEADS, rows)


def parity(results: dict[str, Any]) -> str:
    rows = [
        _flawed(results, "parity, fixed requests", "the pad, fixed requests", "one release", "0"),
        _flawed(results, "parity, adaptive", "the pad, a reader's requests", "one release", "0"),
        _ours(results, "parity, one release", "one release after the deletion"),
        ("ours", "the same, if only the version read counted", None, None, _up(results["observed_only"]["allows"])),
    ]
    return page.table(_HEADS, rows)


def shards(results: dict[str, Any]) -> str:
    rows = [
        _flawed(results, "shards, presence", "shards", "the models after the deletion", "0"),
        _flawed(results, "shards, against learning again", "shards: unlearned, or learned again?", "the same", "0"),
        _ours(results, "digits, read", "the seven releases before the deletion"),
        _ours(results, "digits, one release", "one release after the deletion"),
    ]
    return page.table(_HEADS, rows)


def partition(results: dict[str, Any]) -> str:
    found = results["shards"]
    row = (f"{found['named']:.3f}", _down(found["named_at_least"]), f"{found['leave']:.0f}", f"{found['mates']:.2f}")
    heads = ("shard named", "at least", "others who had to leave", "of these in the person's shard")
    return page.table(heads, [row])


def proved(results: dict[str, Any]) -> str:
    rows = [
        (
            name,
            _down(found["mu_at_least"]),
            _up(found["adaptive_mu"]),
            _down(found["epsilon_at_least"]),
            _up(found["adaptive_epsilon"]),
            "no" if found["adaptive_holds"] else "yes",
            None if name in _EARLIER else _up(found["deletion_mu"]),
            None if name in _EARLIER else "no" if found["deletion_holds"] else "yes",
        )
        for name, found in results["ours"].items()
    ]
    certified = ("`adaptive` mu", "epsilon proved", "`adaptive` epsilon", "refuted", "`deletion` mu", "refuted")
    return page.table(("on ours", "mu proved", *certified), rows)


def necessity(results: dict[str, Any]) -> str:
    names = {"sum_refutes_below": math.floor, "ours_refutes_below": math.floor, "adaptive": math.ceil}
    names |= {"deletion": math.ceil}
    rows = [
        (
            "infinity" if row["order"] == "inf" else f"{row['order']:g}",
            *(_short(row[name], names[name]) for name in names),
        )
        for row in results["theorem_4_5"]["orders"]
    ]
    heads = ("order q", "the sum: refuted below", "ours: refuted below", "ours, `adaptive`", "ours, `deletion`")
    return page.table(heads, rows)


def tests(results: dict[str, Any]) -> str:
    """Of Theorem 4.5, and the game that is won by both."""
    found = results["theorem_4_5"]["tests"] | {"game": results["ours"]["sum, one release"]}
    names = {
        "learning": "of learning: is the person in the first version?",
        "deletion": "of deletion: which group was chosen?",
        "game": "the whole game: was the deleted person in?",
    }
    rows = [(names[name], _near(one["advantage"]), _between(one)) for name, one in found.items()]
    return page.table(("test", "advantage", "lies between"), rows)


ALL = (median, total, counter, pad, parity, shards, partition, proved, tests, necessity)


def _flawed(results: dict[str, Any], name: str, attacked: str, sees: str, allows: str) -> tuple[str, ...]:
    found = results["flawed"][name]
    return attacked, sees, _near(found["advantage"]), _between(found), allows


def _ours(results: dict[str, Any], name: str, sees: str) -> tuple[str, ...]:
    found = results["ours"][name]
    allows = _up(found["adaptive_allows"])
    if name not in _EARLIER:
        allows += f" (`deletion`: {_up(found['deletion_allows'])})"
    return "ours", sees, _near(found["advantage"]), _between(found), allows


def _between(found: dict[str, Any]) -> str:
    """Rounded outwards."""
    return f"{_down(found['low'])} to {_up(found['high'])}"


def _short(value: float | str, rounded: Callable[[float], int]) -> str:
    """Two digits, rounded down if it is a bound from below, up if it is from above."""
    if isinstance(value, str):
        return "infinite"
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{rounded(value / unit) * unit:.2g}"


def _near(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}"  # no minus before a nought


def _down(value: float) -> str:
    return f"{math.floor(1e3 * value) / 1e3:.3f}"


def _up(value: float) -> str:
    return f"{math.ceil(1e3 * value) / 1e3:.3f}"
