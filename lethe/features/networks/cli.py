"""Commands for public networks, and for the progress of uploads that a network encodes."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from lethe import Client
from lethe.cli import commands, derived, gateway
from lethe.client.waiting import Progress
from lethe.contract.problems import Problem

_POLL_SECONDS = 1.0

derived.VERBS["networks.upload"] = "create"
network = derived.add_group("networks", "network", "Public networks that compute features for models.")


@derived.made("networks.upload")
def network_create(
    call: derived.CommandCall,
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="ONNX file of the network, including its weights")
    ],
) -> None:
    """Register a public network."""
    with gateway.console.status(f"Uploading {file.name}"):
        created = call(file)
    gateway.show(created)


derived.derive(
    "networks.list", line="{item.id}  {item.output_size:>6} features  {item.num_parameters:>12} parameters  {item.name}"
)


def _watch(client: Client, name: str, num_bytes: int, progress: Progress, ended: threading.Event) -> None:
    """Report the progress of the newest upload with this name and size until `ended` is set."""
    while not ended.wait(_POLL_SECONDS):
        # The gateway may fail to answer, and the client may be closed.
        with suppress(Problem, RuntimeError):
            uploads = client.datasets.encodings().items
            for upload in [upload for upload in uploads if (upload.name, upload.num_bytes) == (name, num_bytes)][:1]:
                progress("encoding", upload.num_encoded, upload.num_rows)


WATCH_UPLOAD: tuple[commands.WatchUpload, ...] = (_watch,)
