"""`lethe model plan`: accuracy against epsilon against passes, of a file on this machine or of a dataset's models."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Column, Table

from lethe.cli.derived import GROUPS
from lethe.cli.gateway import Key, Url, connect
from lethe.cli.output import console, show
from lethe.cli.tables import (
    LIMITS,
    Layers,
    MetricOption,
    NetworkBytes,
    NetworkFile,
    NetworkMemory,
    NetworkSeconds,
    NetworkSha256,
    Offset,
    Rank,
    formatted,
    tangent_of,
    tried_out,
)
from lethe.contract.models import Objective
from lethe.contract.plans import PlanOut
from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.sets import Metric
from lethe.encoders.limits import Limits

_WIDTH = 12
_EIGHTHS = " ▏▎▍▌▋▊▉"
_UNITS = "learn, request: passes over the rows; noise: of a score, its standard deviation at most."


@GROUPS["models"].app.command("plan")
def model_plan(
    file: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, show_default=False, help="Rows: .csv, .parquet or .npz"),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The public schema (JSON) of FILE")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="In place of FILE: the id of a dataset of the gateway")] = None,
    objective: Annotated[Objective | None, typer.Option(help="Default: that of a model of such a dataset")] = None,
    metric: MetricOption = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="Targets to try with FILE; may be given again")] = None,
    l2: Annotated[
        list[float] | None, typer.Option(help="Regularisation to try; with FILE it may be given again")
    ] = None,
    second_moment: Annotated[float | None, typer.Option(help="With FILE: the bound that models state, up to 1")] = None,
    network: NetworkFile = None,
    network_sha256: NetworkSha256 = None,
    layers: Layers = None,
    rank: Rank = 0,
    offset: Offset = True,
    network_seconds: NetworkSeconds = LIMITS.seconds,
    network_memory_bytes: NetworkMemory = LIMITS.memory_bytes,
    max_network_bytes: NetworkBytes = LIMITS.file_bytes,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Show accuracy against epsilon against passes over the rows, before a model is made.

    Of FILE, accuracy is measured on this machine, on rows that are held out, and nothing is sent: it is about the
    people in the file, so keep it to yourself. Of a dataset, accuracy is that of the versions of its models on their
    evaluation data, and its rows are not read. Noise and passes follow from public numbers alone.
    """
    if file is not None and schema is not None and dataset is None:
        from lethe.theorems import costs

        found = tried_out(
            file,
            schema,
            objective=objective,
            metric=metric,
            epsilons=epsilon or costs.EPSILONS,
            l2=l2,
            second_moment=second_moment,
            network=network,
            network_sha256=network_sha256,
            tangent=tangent_of(layers, rank, offset),
            limits=Limits(seconds=network_seconds, memory_bytes=network_memory_bytes, file_bytes=max_network_bytes),
        ).to_json()
        tried = {name: found[name] for name in ("metric", "plans")}
        show(tried) if as_json else _print_tried(tried["plans"], Metric(tried["metric"]))
    elif dataset is not None and file is None and schema is None:
        if (
            epsilon
            or second_moment
            or network
            or network_sha256
            or tangent_of(layers, rank, offset)
            or len(l2 or []) > 1
        ):
            raise InputInvalid(
                "Targets and networks are tried with FILE alone, and one l2 with a dataset.",
                [FieldError("epsilon", "expected FILE")],
            )
        with connect(url, key) as client:
            plan = client.accounting.plan(dataset, objective=objective, metric=metric, l2=l2[0] if l2 else None)
        show(plan) if as_json else _print_plan(plan)
    else:
        raise InputInvalid(
            "Name a FILE and its --schema, or a --dataset.", [FieldError("file", "expected one of them")]
        )


def _print_tried(plans: list[dict[str, Any]], metric: Metric) -> None:
    names = ("epsilon", "l2", metric.replace("_", " "), Column(no_wrap=True), "no noise", "noise", "learn", "request")
    table = Table(*names, box=box.SIMPLE_HEAD)
    low, high = _ends([plan["accuracy"] for plan in plans])
    for plan in plans:
        table.add_row(
            f"{plan['epsilon']:g}",
            f"{plan['l2']:.2g}",
            formatted(metric, plan["accuracy"]),
            bar_of(plan["accuracy"], low, high),
            formatted(metric, plan["accuracy_without_noise"]),
            f"{plan['noise']:.2f}",
            f"{plan['learn_passes']:.1f}",
            _passes(plan["request_passes"]),
        )
    console.print(table)
    better = ": less is better" if metric.less_is_better else ""
    console.print(f"Bars are from {formatted(metric, low)} to {formatted(metric, high)}{better}. {_UNITS}")


def _print_plan(plan: PlanOut) -> None:
    table = Table("epsilon", "l2", "noise", "learn", "request")
    for cost in plan.costs:
        table.add_row(
            f"{cost.epsilon:g}",
            f"{cost.l2:.2g}",
            f"{cost.noise:.2f}",
            f"{cost.learn_passes:.1f}",
            _passes(cost.request_passes),
        )
    console.print(table)
    console.print(_UNITS)
    if not plan.measured:
        console.print("No model of this dataset has been measured on evaluation data: accuracy is not known.")
        return
    reached = Table(
        "model", "version", "epsilon", "l2", "passes", plan.measured[0].metric.replace("_", " "), Column(no_wrap=True)
    )
    low, high = _ends([one.value for one in plan.measured])
    for one in sorted(plan.measured, key=lambda one: (one.epsilon, one.model_id, one.version)):
        reached.add_row(
            one.name,
            f"{one.version}{' live' if one.live else ''}",
            f"{one.epsilon:g}",
            f"{one.l2:.2g}",
            f"{one.passes:.1f}",
            formatted(one.metric, one.value),
            bar_of(one.value, low, high),
        )
    console.print(reached)


def bar_of(value: float, low: float, high: float) -> str:
    """A bar of eighths of a character, empty at `low` and full at `high`."""
    eighths = round(max(0.0, value - low) / (high - low) * _WIDTH * 8) if high > low else _WIDTH * 8
    whole, part = divmod(eighths, 8)
    return "█" * whole + _EIGHTHS[part].strip()


def _ends(values: list[float]) -> tuple[float, float]:
    """The ends of bars: the highest value, and below the lowest a tenth of what is between; not below 0 unless a value
    is."""
    low, high = min(values), max(values)
    bottom = low - (high - low) / 10
    return (bottom if low < 0 else max(0.0, bottom)), high


def _passes(found: float | None) -> str:
    return "out of reach" if found is None else f"{found:.1f}"
