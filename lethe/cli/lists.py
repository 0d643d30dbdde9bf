"""Commands about lists of people who ask to be forgotten: in from a file, and out with what became of them."""

import csv
import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lethe.batches import NewRequest
from lethe.cli.derived import GROUPS, Asked, made
from lethe.cli.gateway import Key, Url, connect
from lethe.cli.learning import Repeatable
from lethe.cli.list_files import ListFile, fault_of
from lethe.cli.output import bar, console, show
from lethe.contract.batches import BatchItemOut
from lethe.contract.problems import IdempotencyConflict

_BATCH = 1000
_RETRY_SECONDS = 120.0
"""A list is sent by night: it waits until the gateway is back, or its key may call again."""
_TOLD = 10


@GROUPS["deletion_requests"].app.command("import")
def request_import(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Hashes, one per line, or CSV with a header")
    ],
    source: Annotated[str | None, typer.Option(help="A name of the list, to find its requests by")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=COLUMN: where subject_id, subject_sha256 or another field of a request is"),
    ] = None,
    regulation: Annotated[str, typer.Option(help="Of lines that do not name one")] = "gdpr",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing; say what would be sent")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write line, status, id, code and detail of each request (CSV)")
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Ask for everybody on a list to be forgotten; exit code 1 if a line was refused. No identifier is printed.

    Interrupted, it is repeated as it was: within a week the same file from the same source makes nothing twice.
    """
    found = ListFile.opened(file, dict(_pair(one) for one in column or ()))
    if dry_run:
        _try(found, regulation)
        return
    lines: deque[int] = deque()

    def requests() -> Iterator[NewRequest]:
        for line, body in found.requests(regulation=regulation):
            lines.append(line)
            yield body

    accepted, refused = 0, []
    with (
        _in_the_same_way(),
        connect(url, key, retry_seconds=_RETRY_SECONDS) as client,
        _results(out) as write,
        bar() as progress,
    ):
        for item in client.deletion_requests.create_many(
            requests(),
            source=source,
            idempotency_key=found.idempotency_key(source),
            batch_size=_BATCH,
            progress=lambda accepted, refused: progress("sending", accepted + refused, found.num_lines),
        ):
            line = lines.popleft()
            write(line, item)
            accepted += item.accepted
            if not item.accepted:
                refused.append((line, item.code))
    console.print(f"{accepted} accepted, {len(refused)} refused")
    _fail(refused)


@made("deletion_requests.export", retry_seconds=_RETRY_SECONDS)
def request_export(asked: Asked, out: Annotated[Path, typer.Option(help="Where to (CSV)")]) -> None:
    """Save what became of requests: all, or those that satisfy all filters."""
    asked.client.deletion_requests.export(out, **asked.given)
    console.print(str(out), markup=False)


@made("deletion_requests.create_from_csv", retry_seconds=_RETRY_SECONDS)
def request_create_from_csv(
    asked: Asked,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV whose header has fields of a request")],
    idempotency_key: Repeatable = None,
) -> None:
    """Ask for everybody in a CSV file to be forgotten, in one call; `request import` sends lists of any length."""
    show(
        asked.client.deletion_requests.create_from_csv(
            file.read_bytes(), idempotency_key=idempotency_key, **asked.given
        )
    )


def _pair(text: str) -> tuple[str, str]:
    field, equals, column = text.partition("=")
    if not (equals and field and column):
        raise typer.BadParameter("Expected FIELD=COLUMN, such as subject_id=email.")
    return field, column


def _try(found: ListFile, regulation: str) -> None:
    faults: list[tuple[int, str | None]] = []
    count = 0
    for line, body in found.requests(regulation=regulation):
        count += 1
        if fault := fault_of(body):
            faults.append((line, fault))
    console.print(f"{count} requests in {math.ceil(count / _BATCH)} batches; nothing was sent")
    _fail(faults)


def _fail(refused: list[tuple[int, str | None]]) -> None:
    """Exit code 1 if any line was refused, naming the first by number."""
    if refused:
        terminal = Console(stderr=True, soft_wrap=True)
        for line, why in refused[:_TOLD]:
            terminal.print(f"line {line}: {why}", markup=False, highlight=False)
        if len(refused) > _TOLD:
            terminal.print(f"and {len(refused) - _TOLD} more", highlight=False)
        raise typer.Exit(1)


@contextmanager
def _in_the_same_way() -> Iterator[None]:
    """Say of a file that was sent before what to do about it."""
    try:
        yield
    except IdempotencyConflict:
        said = "This file was sent from this source with other options; name another --source to ask again."
        raise IdempotencyConflict(said) from None


@contextmanager
def _results(out: Path | None) -> Iterator[Any]:
    if out is None:
        yield lambda line, item: None
        return
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("line", "status", "id", "code", "detail"))

        def write(line: int, item: BatchItemOut) -> None:
            writer.writerow((line, item.status, item.id, item.code, item.detail))

        yield write
