"""Commands for the agent that runs next to a system's stores."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli import derived, gateway
from lethe.client.methods import Resource

_app = gateway.new_group("Vector stores and folders: erase people, and search the files afterwards.")
# No call of the gateway belongs to this group, which runs next to the stores.
derived.GROUPS["stores"] = derived.Group("store", Resource, _app)
Config = Annotated[Path, typer.Option("--config", exists=True, dir_okay=False, help="The agent's stores.toml.")]


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """If a `StoreError` is raised, print it on a single line and exit with code 1."""
    from lethe.features.stores.store import StoreError

    try:
        yield
    except StoreError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@_app.command("erase")
def erase(
    config: Config,
    identifiers: Annotated[
        list[str] | None, typer.Argument(help="Identifiers of one person; default: standard input, one per line.")
    ] = None,
) -> None:
    """Erase one person from the configured stores, search the stores' files, and print the findings as JSON.

    The exit code is 1 if any data remains. The command can be repeated.
    """
    from lethe.features.stores import agent, configuration

    with _refusals():
        settings = configuration.load(config)
        person = identifiers or [line.strip() for line in sys.stdin if line.strip()]
        if not person:
            raise typer.BadParameter("expected an identifier")
        [findings] = agent.erase(settings, [person])
        grade = agent.grade_of(findings)
        gateway.console.print_json(json.dumps({name: finding.to_json() for name, finding in findings.items()}))
        _print_ghosts(findings)
        if grade is None:
            raise typer.Exit(1)
        agent.finish(settings, [person])
        gateway.console.print(_WORDS[grade])


@_app.command("run")
def run(config: Config, url: gateway.Url = None, key: gateway.Key = None) -> None:
    """Process a system's open tasks: erase each person, search the stores' files, and send the signed report.

    Prints one line per task. The exit code is 1 if any task stays open.
    """
    from lethe.features.stores import agent, configuration

    is_done = True
    with _refusals(), gateway.connect(url, key) as client:
        for outcome in agent.answer(client, configuration.load(config)):
            is_done = is_done and outcome.grade is not None
            state = _WORDS[outcome.grade] if outcome.grade else f"open: {outcome.error or 'something is left'}"
            gateway.console.print(f"{outcome.task_id}  {state}", markup=False)
            _print_ghosts(outcome.findings)
    if not is_done:
        raise typer.Exit(1)


_WORDS = {"searched": "searched", "acknowledged": "deleted, not searched"}


def _print_ghosts(findings: Mapping[str, Any]) -> None:
    for name, finding in findings.items():
        for ghost in finding.ghosts:
            gateway.console.print(f"  left in {name}: {ghost.kind} in {ghost.file}, {ghost.where}", markup=False)
