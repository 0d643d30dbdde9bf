"""Commands for casework on requests: assignment, notes and attachments."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli import commands, derived, gateway
from lethe.client.methods import makes
from lethe.features.desk import contract

derived.derive("deletion_requests.assign", derived.OptionShape(positional=("assignee",)))
derived.derive("deletion_requests.assignees", line="{item.id}  {item.name}")


@derived.made("deletion_requests.add_note", derived.OptionShape(positional=("text",)))
def request_add_note(call: derived.CommandCall) -> None:
    """Add a note to a request for the people who decide on it. `-` reads the note from standard input, so that its text
    does not show up in the process list."""
    if call.arguments["text"] == "-":
        call.arguments["text"] = sys.stdin.read().rstrip("\n")
    gateway.show(call())


derived.derive(
    "deletion_requests.notes", line=lambda note: f"{note.at:%F %T}  {note.author_name or note.author}\n{note.text}\n"
)


@derived.GROUPS["deletion_requests"].app.command("attach")
@makes(contract.ATTACH)
def request_attach(
    request_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="File to attach: .pdf, .png, .jpeg, .jpg, .txt or .eml.")
    ],
    url: gateway.Url = None,
    key: gateway.Key = None,
) -> None:
    """Attach a file, such as a scan, proof of identity or e-mail, for the people who decide on a request."""
    with gateway.connect(url, key) as client:
        gateway.show(client.deletion_requests.attach(request_id, file))


derived.derive(
    "deletion_requests.attachments",
    line=lambda file: f"{file.id}  {file.at:%F %T}  {file.size:>9}  {file.author_name or file.author}  {file.name}",
)


@derived.GROUPS["deletion_requests"].app.command("verify-evidence-pack")
def verify_evidence_pack(
    pack: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Evidence pack of a request, as a ZIP file")
    ],
    jwks: Annotated[Path | None, typer.Option(help="Issuer's public keys; default: the keys in the pack")] = None,
) -> None:
    """Verify an evidence pack offline: the signed manifest, the digest of every file, all certificates, and the audit
    entries.

    Exits with status 1 if any part does not match its signature. Keys from the pack itself do not prove who signed it.
    """
    from lethe.features.desk import evidence_pack

    verified = evidence_pack.verify(pack.read_bytes(), commands.key_set_in(jwks) if jwks else None)
    gateway.console.print(
        f"[green]valid[/]  request {verified.request_id}  made {verified.made_at:%F %T}  key {verified.key_id[:12]}"
    )
    gateway.console.print(f"       {len(verified.members)} files, {len(verified.verdicts)} signed statements")
    link = "linked up to a signed checkpoint" if verified.is_chained else "each by itself, not linked to a checkpoint"
    gateway.console.print(f"       {verified.entries} audit entries, {link}")
    if jwks is None:
        gateway.console.print("       signed with a key from the pack itself: name the issuer's keys with --jwks")
