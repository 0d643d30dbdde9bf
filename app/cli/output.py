"""What all commands share: groups, and how they print."""

import json
from typing import Any

import typer
from rich.console import Console

console = Console(soft_wrap=True)


def new_group(help: str | None = None) -> typer.Typer:  # noqa: A002  Typer's word
    return typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=help)


def show(document: Any) -> None:
    console.print_json(json.dumps(document))
