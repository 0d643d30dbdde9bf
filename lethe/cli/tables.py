"""Commands about tables on this machine: nothing of them is sent anywhere."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from lethe.cli.derived import GROUPS
from lethe.cli.output import bar, console, show
from lethe.contract.problems import FieldError, InputInvalid, SchemaInvalid
from lethe.contract.sets import Metric
from lethe.encoders.limits import Limits

if TYPE_CHECKING:
    from lethe.tables import Preview

_SHARES = (Metric.ACCURACY, Metric.AUC, Metric.LABEL_ACCURACY, Metric.EXACT_MATCH)
_MOST_SHOWN = 12
"""Features of the row that is shown."""
LIMITS = Limits()
MetricOption = Annotated[Metric | None, typer.Option(help="Default: accuracy, label_accuracy or r_squared")]
NetworkFile = Annotated[
    Path | None,
    typer.Option(help="The ONNX file of a public network whose features of these numbers are the rows"),
]
Layers = Annotated[
    list[str] | None,
    typer.Option(help="Learn a tangent model of the network: the weights that it moves; may be given again"),
]
Rank = Annotated[int, typer.Option(help="With --layers: learn a factor of so many columns of each; 0: all of it")]
Offset = Annotated[bool, typer.Option(help="With --layers: add the scores of the network as it is")]
NetworkSha256 = Annotated[str | None, typer.Option(help="The SHA-256 that this file must have")]
NetworkSeconds = Annotated[float, typer.Option(envvar="LETHE_NETWORK_SECONDS", hidden=True)]
NetworkMemory = Annotated[int, typer.Option(envvar="LETHE_NETWORK_MEMORY_BYTES", hidden=True)]
NetworkBytes = Annotated[int, typer.Option(envvar="LETHE_MAX_NETWORK_BYTES", hidden=True)]
Here = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: .csv, .parquet or .npz")]


@GROUPS["datasets"].app.command("preview")
def dataset_preview(
    file: Here,
    schema: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The public schema (JSON)")],
    objective: Annotated[str | None, typer.Option(help="Default: that of a model of such a dataset")] = None,
    metric: MetricOption = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="Targets to try; may be given again")] = None,
    l2: Annotated[list[float] | None, typer.Option(help="Regularisation to try; may be given again")] = None,
    second_moment: Annotated[float | None, typer.Option(help="The bound that models state, up to 1")] = None,
    network: NetworkFile = None,
    network_sha256: NetworkSha256 = None,
    layers: Layers = None,
    rank: Rank = 0,
    offset: Offset = True,
    network_seconds: NetworkSeconds = LIMITS.seconds,
    network_memory_bytes: NetworkMemory = LIMITS.memory_bytes,
    max_network_bytes: NetworkBytes = LIMITS.file_bytes,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Try a table out on this machine: how its rows look once encoded, and what accuracy and forgetting would cost.

    Nothing is sent. What is printed is about the people in the table: do not publish it.
    """
    from lethe.tables.preview import EPSILONS

    found = tried_out(
        file,
        schema,
        objective=objective,
        metric=metric,
        epsilons=epsilon or EPSILONS,
        l2=l2,
        second_moment=second_moment,
        network=network,
        network_sha256=network_sha256,
        tangent=tangent_of(layers, rank, offset),
        limits=Limits(seconds=network_seconds, memory_bytes=network_memory_bytes, file_bytes=max_network_bytes),
    )
    if as_json:
        show(found.to_json())
    else:
        _print(found)


def tangent_of(layers: list[str] | None, rank: int, offset: bool) -> dict[str, Any] | None:
    """The tangent that is asked for, if one is. Raises `InputInvalid` for settings of one that moves nothing."""
    if not layers and (rank or not offset):
        raise InputInvalid("A tangent moves layers.", [FieldError("layers", "expected, with --rank or --no-offset")])
    return {"layers": layers, "rank": rank, "offset": offset} if layers else None


def tried_out(file: Path, schema: Path, **asked: Any) -> "Preview":
    """The preview of a file by a schema, with a progress bar."""
    from lethe.tables import preview

    try:
        document = json.loads(schema.read_text())
    except ValueError:
        raise SchemaInvalid(f"{schema} is not JSON.") from None
    with bar() as progress:
        return preview(file, schema=document, progress=progress, **asked)


@GROUPS["datasets"].app.command("infer")
def dataset_infer(
    file: Here,
    label: Annotated[str | None, typer.Option(help="The column of classes that is predicted")] = None,
    labels: Annotated[str | None, typer.Option(help="In its place: the column of several labels")] = None,
    target: Annotated[str | None, typer.Option(help="In its place: the column of numbers")] = None,
    counts: Annotated[str | None, typer.Option(help="In its place: the column of counts, 0, 1, 2, ...")] = None,
    separator: Annotated[str, typer.Option(help="Between several labels")] = ";",
    subject: Annotated[str | None, typer.Option(help="The column that says whose a row is")] = None,
    weight: Annotated[str | None, typer.Option(help="The column that says how much a row counts")] = None,
    weight_bound: Annotated[float | None, typer.Option(help="The most that a row may count, which you state")] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="NAME=MIN..MAX, numbers or dates that you state; may be repeated"),
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--values", help="NAME=ONE,OTHER: values that you state; may be repeated")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Confirm that nobody in FILE may ever ask to be forgotten")
    ] = False,
) -> None:
    """Propose a schema from a public sample, or from ranges that you state, to be looked through and edited.

    A schema is public and stays when people are forgotten. So it is read from a sample of nobody who may ask: a
    published or made-up table with the same columns. Of a column that you state nothing is read; where all are stated,
    FILE may be the people's own.
    """
    from lethe.tables import infer

    stated = {name: _range(name, said) for name, said in _pairs("range", ranges)}
    stated |= {
        name: {"kind": "categorical", "values": said.split(","), "unknown": "null"}
        for name, said in _pairs("values", names)
    }
    if (learned := label or labels or target or counts) in stated:
        stated[str(learned)].pop("kind")
        stated[str(learned)].pop("unknown", None)
    found = infer(
        file,
        label=label,
        labels=labels,
        target=target,
        counts=counts,
        separator=separator,
        subject=subject,
        weight=weight,
        weight_bound=weight_bound,
        stated=stated,
        public=public,
    )
    show(found)
    if ignored := [name for name, spec in found["columns"].items() if spec.get("role") == "ignored"]:
        said = "they have one value, or values that no column of a schema takes"
        typer.echo(f"warning: ignored: {', '.join(ignored)}; {said}", err=True)


def _pairs(option: str, given: list[str] | None) -> list[tuple[str, str]]:
    found = [one.partition("=") for one in given or []]
    if not all(name and said for name, _, said in found):
        raise InputInvalid(f"Expected --{option} with a name of a column.", [FieldError(option, "expected NAME=...")])
    return [(name, said) for name, _, said in found]


def _range(name: str, said: str) -> dict[str, Any]:
    """A column of numbers, or of dates, between these ends."""
    from lethe.encoding import values

    ends = said.split("..")
    for kind, read in (("numeric", values.numbers), ("datetime", values.seconds)):
        found = read(ends).tolist()
        if len(found) == 2 and all(map(math.isfinite, found)) and found[0] < found[1]:
            low, high = found if kind == "numeric" else ends
            return {"kind": kind, "min": low, "max": high, "outside": "clip"}
    raise InputInvalid(
        f"Column {name} has no range.", [FieldError("range", "expected NAME=MIN..MAX, two numbers or two dates")]
    )


def formatted(metric: str, value: float) -> str:
    """A value of a metric: shares of rows in percent, all others as they are."""
    return f"{value:.2%}" if metric in _SHARES else f"{value:.4g}"


def _print(found: "Preview") -> None:
    metric = found.metric.replace("_", " ")
    console.print(
        f"{found.num_rows} rows, {found.num_features} features; of {found.held_out} rows held out: to say the same of "
        f"all has the {metric} {formatted(found.metric, found.majority)}"
    )
    if found.network is not None:
        walls = "" if found.network.shut_in else "; on this system its process was held to its memory alone"
        what = f"a tangent, in {found.num_moved} parameters," if found.num_moved else "features"
        console.print(f"{what} of the network of SHA-256 {found.network.sha256}{walls}")
    columns = Table("column", "kind", "features", "unknown", "clipped")
    for one in found.columns:
        columns.add_row(one.name, one.kind, str(one.num_features), f"{one.unknown:.1%}", f"{one.clipped:.1%}")
    console.print(columns)
    low, middle, high = found.lengths
    console.print(
        f"lengths of rows before they are scaled to 1: 90 % from {low:.3g} to {high:.3g}, half below {middle:.3g}"
    )
    shown = [f"{name}[{place}] {number:.3f}" for name, place, number in found.row[:-1]][:_MOST_SHOWN]
    more = len(found.row) - 1 - len(shown)
    rest = f", and {more} more" if more else ""
    console.print(
        f"a row of middle length, encoded: {', '.join(shown)}{rest}; bias {found.row[-1][2]:.3f}", markup=False
    )
    if found.second_moment is not None:
        console.print(f"largest second moment of a batch: {found.second_moment:.2f}")
    for warning in found.warnings:
        console.print(f"warning: {warning}")
    if found.scikit_learn is not None:
        console.print(f"scikit-learn, {found.scikit_learn_model}: {formatted(found.metric, found.scikit_learn)}")
    plans = Table("l2", "epsilon", metric, "without noise", "passes to learn", "passes of a request")
    for plan in found.plans:
        passes = "out of reach" if plan.request_passes is None else f"{plan.request_passes:.1f}"
        plans.add_row(
            f"{plan.l2:.2g}",
            f"{plan.epsilon:g}",
            formatted(found.metric, plan.accuracy),
            formatted(found.metric, plan.accuracy_without_noise),
            f"{plan.learn_passes:.1f}",
            passes,
        )
    console.print(plans)
