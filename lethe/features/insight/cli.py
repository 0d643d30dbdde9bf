"""Commands that show the past and future cost of forgetting."""

import itertools
from typing import Annotated

import typer

from lethe.cli import derived, gateway

derived.derive("accounting.preview", derived.OptionShape(positional=("model_id",), also={"num_records": "--records"}))


@derived.made("accounting.trajectory", derived.OptionShape(defaults={"points": 20}))
def account_trajectory(
    call: derived.CommandCall,
    runs: Annotated[int, typer.Option(min=1, help="Maximum number of runs, newest first")] = 10,
) -> None:
    """Show influence and epsilon step by step for each run, newest run first."""
    gateway.show(list(itertools.islice(call(), runs)))
