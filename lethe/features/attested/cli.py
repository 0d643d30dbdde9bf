"""Commands for trainers outside Lethe."""

import json
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli import derived, gateway
from lethe.features.attested.contract import AttestedTrainerOut

derived.add_group(
    "attested_trainers", "attested-trainer", "Trainers outside of Lethe, their manifests, and what may be served."
)


def _line_of(trainer: AttestedTrainerOut) -> str:
    due = trainer.next_retraining
    state = "retired" if trainer.retired_at else f"due {due.latest_at:%F}, {due.num_waiting} waiting" if due else "idle"
    return f"{trainer.id}  {state:<26}  {trainer.name}"


derived.derive("attested_trainers.list", line=_line_of)
derived.derive(
    "attested_trainers.create", derived.OptionShape(positional=("name", "contact", "webhook_url", "public_key"))
)


@derived.made("attested_trainers.accept", derived.OptionShape(omit=("jws", "identifiers")))
def accept(
    call: derived.CommandCall,
    people: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Digests of the people read, one per line")
    ],
    artefact: Annotated[list[Path], typer.Option(exists=True, dir_okay=False, help="Artefact that was produced")],
    sign_with: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="The trainer's Ed25519 key, as a private JWK")
    ],
    rows_read_at: Annotated[str, typer.Option(help="read_at of the response with the digests")],
    code_revision: Annotated[str, typer.Option(help="Revision of the training code")],
    environment: Annotated[str, typer.Option(help="Training environment, such as an image digest")],
) -> None:
    """Sign a retraining's manifest with the trainer's Ed25519 key, and send it."""
    import hashlib

    from lethe.features.attested import manifests

    [trainer_id] = call.ids
    signed = manifests.sign(
        json.loads(sign_with.read_text()),
        trainer_id=trainer_id,
        retraining_id=call.client.attested_trainers.get(trainer_id).retraining_id,
        rows_read_at=rows_read_at,
        identifiers=people.read_text().split(),
        artefacts=[hashlib.sha256(path.read_bytes()).hexdigest() for path in artefact],
        code_revision=code_revision,
        environment=environment,
    )
    call.arguments.update(signed)
    gateway.show(call())
