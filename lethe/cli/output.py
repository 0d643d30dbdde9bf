"""Output shared by all commands: groups, and how they print."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from lethe.reading import to_json
from lethe.waiting import Progress

console = Console(soft_wrap=True)


def new_group(help: str | None = None) -> typer.Typer:  # noqa: A002  Typer's word
    return typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=help)


def in_words(audit: Mapping[str, Any] | None) -> str:
    """One line about a canary test: what was certified and what was proved of a canary that was forgotten, or is still
    there; and what was refuted, if any."""
    if audit is None:
        return "no canary test"
    refuted = f"; refuted: {', '.join(audit['findings'])}" if audit["findings"] else ""
    there = " of a record still there" if audit["notion"] == "release" else ""
    error = f"wrong once in {1 / audit['error']:,.0f} runs at most"
    return (
        f"epsilon <= {at_most(audit['epsilon'])} certified{there}, >= {at_least(audit['epsilon_lower_bound'])} proved"
        f" by {audit['lanes']} canaries and controls ({error}){refuted}"
    )


def at_most(value: float, digits: int = 4) -> str:
    """With so many significant digits, rounded up: for what is claimed to be no more than that."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))):.{digits}g}"


def at_least(value: float, digits: int = 4) -> str:
    """As `at_most`, rounded down."""
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(value))):.{digits}g}"


def show(found: Any) -> None:
    """JSON, or a value of the SDK as the gateway sent it."""
    console.print_json(json.dumps(to_json(found)))


@contextmanager
def bar() -> Iterator[Progress]:
    """A progress bar, on a terminal, for something to wait for."""
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    terminal = Console(stderr=True)
    with ProgressBar(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as shown:
        task = shown.add_task("waiting", total=None)

        def progress(status: str, done: int, total: int | None) -> None:
            shown.update(task, description=status)
            if total is not None:  # what is over has no steps any more
                shown.update(task, completed=done, total=total)

        yield progress
