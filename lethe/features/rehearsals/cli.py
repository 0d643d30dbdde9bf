"""Commands for rehearsals of forgetting."""

from typing import Annotated

import typer

from lethe.cli import derived, gateway


@derived.made("models.rehearse")
def model_rehearse(
    call: derived.CommandCall,
    wait: Annotated[bool, typer.Option(help="Wait for the report, with a progress bar")] = True,
) -> None:
    """Forget randomly drawn people in a scratch copy, and show the effect; exit with code 1 if the rehearsal fails."""
    rehearsal = call()
    if not wait:
        gateway.show(rehearsal)
        return
    with gateway.bar() as progress:
        rehearsal = call.client.models.wait_for_rehearsal(rehearsal.model_id, rehearsal.id, progress=progress)
    gateway.show(rehearsal)
    if rehearsal.report is None:
        raise typer.Exit(1)


derived.derive(
    "models.rehearsals", line="{item.id}  {item.status:<10} {item.people:>5} people  {item.asked_at:%Y-%m-%d %H:%M}"
)
