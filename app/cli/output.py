"""What all commands share: groups, and how they print."""

import json
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import typer
from rich.console import Console

from lethe.proof.guarantees import Notion
from lethe.reading import to_json

console = Console(soft_wrap=True)


def new_group(help: str | None = None) -> typer.Typer:  # noqa: A002  Typer's word
    return typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=help)


def in_words(audit: Mapping[str, Any] | None) -> str:
    """One line about an audit: what was certified and what was proved of a canary that was forgotten, or is still
    there; and what was refuted, if any."""
    if audit is None:
        return "not audited"
    refuted = f"; refuted: {', '.join(audit['findings'])}" if audit["findings"] else ""
    there = " of a record still there" if audit["notion"] == Notion.RELEASE else ""
    error = f"wrong once in {1 / audit['error']:,.0f} runs at most"
    return (
        f"epsilon <= {at_most(audit['epsilon'])} certified{there}, >= {at_least(audit['epsilon_lower_bound'])} proved"
        f" by {audit['lanes']} lanes ({error}){refuted}"
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
