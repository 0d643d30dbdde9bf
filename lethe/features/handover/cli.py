"""Command that writes a model to a single ONNX file."""

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
    """Write a version as a single ONNX file that maps a record's columns to its probabilities. Its predictions match
    the gateway's. The gateway records that the weights were exported."""
    from lethe.features.handover import onnx

    with connect(url, key) as client:
        show(dataclasses.asdict(onnx.export(client, model_id, to, version=version)))
