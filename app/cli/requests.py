"""Commands about people who ask to be forgotten, one at a time."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import console, new_group, show
from app.cli.remote import Key, Url, connect, of_one, show_when_over, waits
from lethe.contract.sets import RejectionGround
from lethe.reading import to_json

request = new_group("People who ask to be forgotten.")
suppression = new_group("Who is not taken in again.")
commands = new_group()
for name, group in (("request", request), ("suppression", suppression)):
    commands.add_typer(group, name=name)

Subject = Annotated[str, typer.Argument(help="Who; '-' reads it from standard input")]


@request.command("submit")
def request_submit(
    subject_id: Subject,
    alias: Annotated[list[str] | None, typer.Option(help="Another id of theirs; as often as need be")] = None,
    regulation: Annotated[str, typer.Option(help="gdpr, ccpa, other, or one of the tenant's policy")] = "gdpr",
    wait: Annotated[bool, typer.Option(help="Wait until it is completed")] = True,
    url: Url = None,
    key: Key = None,
) -> None:
    """Ask for a person to be forgotten everywhere."""
    with connect(url, key) as client:
        made = client.deletion_requests.create(subject_id=_read(subject_id), aliases=alias or [], regulation=regulation)
        if wait:
            show_when_over(client.deletion_requests, made.id)
        else:
            show(made)


waits(request, "Wait until a request has ended.", lambda client: client.deletion_requests)
for command, does, call in (
    ("show", "One request.", lambda client: client.deletion_requests.get),
    ("cancel", "Withdraw what no worker has taken.", lambda client: client.deletion_requests.cancel),
    ("approve", "Accept what is in review.", lambda client: client.deletion_requests.approve),
    (
        "pause",
        "Stop the clock of what is in review, while it is being established who asks.",
        lambda client: client.deletion_requests.pause,
    ),
    ("resume", "Let a paused clock run again.", lambda client: client.deletion_requests.resume),
    ("lineage", "Which models and copies the person's rows fed.", lambda client: client.lineage.of_request),
):
    of_one(request, command, does, call)


@request.command("reject")
def request_reject(
    request_id: str,
    ground: Annotated[RejectionGround, typer.Option(help="What the law knows")],
    explanation: Annotated[str, typer.Option(help="For the person: why they are not forgotten")],
    url: Url = None,
    key: Key = None,
) -> None:
    """Refuse to forget, before a worker has taken the request."""
    with connect(url, key) as client:
        show(client.deletion_requests.reject(request_id, ground=ground, explanation=explanation))


@request.command("extend")
def request_extend(
    request_id: str,
    reason: Annotated[str, typer.Option(help="For the person: why it takes longer")],
    url: Url = None,
    key: Key = None,
) -> None:
    """Extend the deadline as the regulation allows, once."""
    with connect(url, key) as client:
        show(client.deletion_requests.extend(request_id, reason=reason))


@request.command("certificate")
def request_certificate(request_id: str, to: Path, url: Url = None, key: Key = None) -> None:
    """Save a request's certificates, and beside them the public keys to verify them with (`TO.jwks.json`)."""
    with connect(url, key) as client:
        to.write_text(json.dumps(to_json(client.deletion_requests.proof(request_id)), indent=2))
        keys = Path(f"{to}.jwks.json")
        keys.write_text(json.dumps(client.certificates.public_keys(), indent=2))
    console.print(f"{to} and {keys}")


@suppression.command("lift")
def suppression_lift(subject_id: Subject, url: Url = None, key: Key = None) -> None:
    """Take rows of a person again, who has given consent."""
    with connect(url, key) as client:
        show(client.suppressions.lift(subject_id=_read(subject_id)))


def _read(subject_id: str) -> str:
    return sys.stdin.readline().rstrip("\n") if subject_id == "-" else subject_id
