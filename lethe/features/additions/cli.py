"""Command that adds rows to a dataset."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from lethe import Client
from lethe.cli import commands, derived, gateway
from lethe.contract.problems import Problem


def _has_network(client: Client, dataset_id: str) -> bool:
    # A key may be allowed to add rows but not to read datasets.
    with suppress(Problem):
        return client.datasets.get(dataset_id).network_id is not None
    return False


@derived.made("datasets.add", derived.OptionShape(omit=("suppressed",)))
def dataset_add(
    call: derived.CommandCall,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows with the dataset's columns")],
    skip_suppressed: commands.Skip = False,
) -> None:
    """Add rows to the slots of forgotten people; the dataset's models are then retrained."""
    commands.skip(call, skip_suppressed)
    [dataset_id] = call.ids
    with commands.uploading(call.client, file, dataset_id, encoded=_has_network(call.client, dataset_id)):
        added = call(file)
    gateway.show(added)
