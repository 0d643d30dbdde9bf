"""Commands about people who ask to be forgotten, one at a time."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.derived import GROUPS, Asked, derive, made
from lethe.cli.gateway import Key, Url, connect
from lethe.cli.learning import show_when_over
from lethe.cli.options import Shape
from lethe.cli.output import console, show
from lethe.contract import request_attachments
from lethe.methods import makes
from lethe.reading import to_json


@made(
    "deletion_requests.create",
    Shape(positional=("subject_id",), also={"aliases": "--alias", "dataset_ids": "--dataset-id"}),
)
def request_submit(asked: Asked, wait: Annotated[bool, typer.Option(help="Wait until it is completed")] = True) -> None:
    """Ask for a person to be forgotten everywhere."""
    made = asked()
    if wait:
        show_when_over(asked.client.deletion_requests, made.id)
    else:
        show(made)


derive(
    "deletion_requests.list",
    line=lambda found: (
        f"{found.id}  {found.status:<9}  {found.outcome or '-':<15}  due {found.clock.deadline:%F}"
        f"  {found.regulation}  {found.source or ''}"
    ).rstrip(),
)
derive("deletion_requests.assign", Shape(positional=("assignee",)))
derive("deletion_requests.assignees", line=lambda found: f"{found.id}  {found.name}")


@made("deletion_requests.add_note", Shape(positional=("text",)))
def request_add_note(asked: Asked) -> None:
    """Write something about a request for those who decide; `-` reads it from standard input, where no list of
    processes shows it."""
    if asked.given["text"] == "-":
        asked.given["text"] = sys.stdin.read().rstrip("\n")
    show(asked())


derive(
    "deletion_requests.notes",
    line=lambda found: f"{found.at:%F %T}  {found.author_name or found.author}\n{found.text}\n",
)


@GROUPS["deletion_requests"].app.command("attach")
@makes(request_attachments.ADD)
def request_attach(
    request_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The file: .pdf, .png, .jpeg, .jpg, .txt or .eml")
    ],
    url: Url = None,
    key: Key = None,
) -> None:
    """Attach a file to a request for those who decide: a scan, a proof of identity, a mail."""
    with connect(url, key) as client:
        show(client.deletion_requests.attach(request_id, file))


derive(
    "deletion_requests.attachments",
    line=lambda found: (
        f"{found.id}  {found.at:%F %T}  {found.size:>9}  {found.author_name or found.author}  {found.name}"
    ),
)
derive("lineage.of_request", group="deletion_requests", verb="lineage")
derive("suppressions.lift", Shape(positional=("subject_id",)))


@made("deletion_requests.proof")
def request_certificate(asked: Asked, to: Path) -> None:
    """Save a request's certificates, and beside them the public keys to verify them with (`TO.jwks.json`)."""
    to.write_text(json.dumps(to_json(asked()), indent=2))
    keys = Path(f"{to}.jwks.json")
    keys.write_text(json.dumps(asked.client.certificates.public_keys(), indent=2))
    console.print(f"{to} and {keys}")
