"""Commands that show the past and future cost of forgetting."""

import itertools
from typing import Annotated

import typer

from lethe.cli.derived import CommandCall, OptionShape, derive, made
from lethe.cli.gateway import show

derive("accounting.preview", OptionShape(positional=("model_id",), also={"num_records": "--records"}))


@made("accounting.trajectory", OptionShape(defaults={"points": 20}))
def account_trajectory(
    call: CommandCall, runs: Annotated[int, typer.Option(min=1, help="Maximum number of runs, newest first")] = 10
) -> None:
    """Show influence and epsilon step by step for each run, newest run first."""
    show(list(itertools.islice(call(), runs)))
