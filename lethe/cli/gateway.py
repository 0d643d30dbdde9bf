"""Input and output shared by all commands: the connection to the gateway, command groups, and printing."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, Field
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as ProgressBar, TextColumn, TimeElapsedColumn

from lethe.contract import fields, problems
from lethe.reading import to_json

if TYPE_CHECKING:
    from lethe import Client
    from lethe.client.waiting import Progress

Url = Annotated[str | None, typer.Option(envvar="LETHE_URL", help="Gateway's URL; default: LETHE_HOST and LETHE_PORT.")]
Key = Annotated[str | None, typer.Option(envvar="LETHE_API_KEY", help="API key; default: the admin key file.")]

RETRY_SECONDS = 3.0
"""Short, so that a person at a terminal quickly learns that the gateway is unreachable."""


class _Installed(BaseModel):
    """Settings of a server installed on this machine, with the server's defaults."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    data_dir: Path = Path(".lethe")
    admin_key_file: Path | None = None

    @classmethod
    def from_environment(cls) -> "_Installed":
        """Read the settings from the environment."""
        variables = {name.lower(): value for name, value in os.environ.items()}
        return cls.model_validate(
            {name: variables[f"lethe_{name}"] for name in cls.model_fields if f"lethe_{name}" in variables}
        )


def connect(url: str | None, key: str | None, *, retry_seconds: float = RETRY_SECONDS) -> "Client":
    """Return a client for the given gateway, or for the gateway on this machine. Raises `Unauthenticated`."""
    # Imported here, because services print by this module and need no client.
    from lethe import Client

    installed = _Installed.from_environment()
    if key is None:
        path = installed.admin_key_file or installed.data_dir / "keys" / "admin.key"
        if not path.exists():
            raise problems.Unauthenticated(f"no API key; set LETHE_API_KEY (there is no {path})")
        key = fields.trimmed(path.read_text())
    return Client(url or f"http://{installed.host}:{installed.port}", key, retry_seconds=retry_seconds)


console = Console(soft_wrap=True)


def new_group(help: str | None = None) -> typer.Typer:  # noqa: A002  Typer's word
    return typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=help)


def in_words(audit: Mapping[str, Any] | None) -> str:
    """Return a one-line summary of a canary test: the certified epsilon and the lower bound that the test proved, for a
    forgotten or a present record, and any refuted property."""
    if audit is None:
        return "no canary test"
    refuted = f"; refuted: {', '.join(audit['findings'])}" if audit["findings"] else ""
    present = " of a record still there" if audit["notion"] == "release" else ""
    error = f"wrong once in {1 / audit['error']:,.0f} runs at most"
    return (
        f"epsilon <= {at_most(audit['epsilon'])} certified{present}, >= {at_least(audit['epsilon_lower_bound'])} proved"
        f" by {audit['lanes']} canaries and controls ({error}){refuted}"
    )


def at_most(value: float, digits: int = 4) -> str:
    """Format an upper bound with `digits` significant digits, rounded up."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))):.{digits}g}"


def at_least(value: float, digits: int = 4) -> str:
    """Format a lower bound with `digits` significant digits, rounded down."""
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(value))):.{digits}g}"


def show(value: Any) -> None:
    """Print a JSON value, or an SDK value in the form in which the gateway sent it."""
    console.print_json(json.dumps(to_json(value)))


@contextmanager
def bar() -> "Iterator[Progress]":
    """Show a progress bar during a wait if standard error is a terminal."""
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    terminal = Console(stderr=True)
    with ProgressBar(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as progress_bar:
        task = progress_bar.add_task("waiting", total=None)

        def progress(status: str, done: int, total: int | None) -> None:
            progress_bar.update(task, description=status)
            # No steps are reported of a run that has finished.
            if total is not None:
                progress_bar.update(task, completed=done, total=total)

        yield progress
