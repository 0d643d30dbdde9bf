"""Command that writes a model to a single ONNX file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from lethe.cli import commands, derived, gateway


@derived.GROUPS["models"].app.command("export-onnx")
def model_export_onnx(
    model_id: commands.Id,
    to: Annotated[Path, typer.Argument(dir_okay=False, help="Path of the file to write")],
    version: Annotated[int | None, typer.Option(help="Number of the version; default: the live version")] = None,
    url: gateway.Url = None,
    key: gateway.Key = None,
) -> None:
    """Write a version as a single ONNX file that maps a record's columns to its probabilities. Its predictions match
    the gateway's. The gateway records that the weights were exported."""
    from lethe.features.handover import onnx

    with gateway.connect(url, key) as client:
        gateway.show(dataclasses.asdict(onnx.export(client, model_id, to, version=version)))
