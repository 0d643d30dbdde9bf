"""Command that requests a canary test."""

from typing import Annotated

import typer

from lethe.cli import derived, gateway
from lethe.contract.sets import RunStatus


@derived.made("models.audit")
def model_audit(
    call: derived.CommandCall,
    wait: Annotated[bool, typer.Option(help="Wait for the end, with a progress bar, and show the run")] = True,
) -> None:
    """Run a canary test with many canaries and none of the model's data. Exit status: 1 if a guarantee is refuted."""
    model = call()
    if not wait:
        gateway.show(model)
        return
    with gateway.bar() as progress:
        done = call.client.models.wait_for_audit(model.id, progress=progress)
    gateway.show(done)
    if done is None or done.status is not RunStatus.PUBLISHED:
        raise typer.Exit(1)
