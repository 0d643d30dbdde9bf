"""Command that adds rows to a dataset."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from lethe import Client
from lethe.cli.commands import Skip, skip, uploading
from lethe.cli.derived import CommandCall, OptionShape, made
from lethe.cli.gateway import show
from lethe.contract.problems import Problem


def _has_network(client: Client, dataset_id: str) -> bool:
    # A key may be allowed to add rows but not to read datasets.
    with suppress(Problem):
        return client.datasets.get(dataset_id).network_id is not None
    return False


@made("datasets.add", OptionShape(omit=("suppressed",)))
def dataset_add(
    call: CommandCall,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows with the dataset's columns")],
    skip_suppressed: Skip = False,
) -> None:
    """Add rows to the slots of forgotten people; the dataset's models are then retrained."""
    skip(call, skip_suppressed)
    [dataset_id] = call.ids
    with uploading(call.client, file, dataset_id, encoded=_has_network(call.client, dataset_id)):
        added = call(file)
    show(added)
