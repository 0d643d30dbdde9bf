"""Command that writes a model as one ONNX file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.commands import Id
from lethe.cli.derived import GROUPS
from lethe.cli.gateway import Key, Url, connect, show


@GROUPS["models"].app.command("export-onnx")
def model_export_onnx(
    model_id: Id,
    to: Annotated[Path, typer.Argument(dir_okay=False, help="Path of the file to write")],
    version: Annotated[int | None, typer.Option(help="Number of the version; default: the live version")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Write a version as one ONNX file, from the columns of a record to its probabilities. The file predicts as the
    gateway does. The export of its weights is recorded."""
    from lethe.features.handover import onnx

    with connect(url, key) as client:
        show(dataclasses.asdict(onnx.export(client, model_id, to, version=version)))
