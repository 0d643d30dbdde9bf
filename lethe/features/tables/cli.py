"""Commands for tables on this machine, which are never sent anywhere, and for model plans."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel
from rich import box
from rich.table import Column, Table

from lethe.cli import derived, gateway
from lethe.contract import datasets, models, sets
from lethe.contract.problems import FieldError, InputInvalid, PreconditionFailed, SchemaInvalid
from lethe.features.insight.contract import PlanOut
from lethe.features.networks.encoders.limits import Limits

if TYPE_CHECKING:
    from lethe.features.tables.networks import NetworkFile
    from lethe.features.tables.previewing import Preview

_SHARES = (sets.Metric.ACCURACY, sets.Metric.AUC, sets.Metric.LABEL_ACCURACY, sets.Metric.EXACT_MATCH)
_MAX_SHOWN_FEATURES = 12
"""Maximum number of features shown for an encoded row."""
TableFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: .csv, .parquet or .npz")]
_LIMITS = Limits()


def _help(model: type[BaseModel], field: str) -> str | None:
    """Return the contract's description of a model's field."""
    return model.model_fields[field].description


def spread(act: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which each dataclass parameter is replaced by one option per field of the dataclass."""
    own = inspect.signature(act, eval_str=True).parameters
    values: dict[str, Any] = {name: arg.annotation for name, arg in own.items() if is_dataclass(arg.annotation)}

    def command(**arguments: Any) -> None:
        for name, kind in values.items():
            arguments[name] = kind(**{field: arguments.pop(field) for field in inspect.signature(kind).parameters})
        act(**arguments)

    options = [
        option
        for name, arg in own.items()
        for option in (inspect.signature(values[name], eval_str=True).parameters.values() if name in values else (arg,))
    ]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    )
    command.__doc__ = act.__doc__
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Options shared by the commands that fit models to a file: the settings to try and the network."""

    objective: Annotated[models.Objective | None, typer.Option(help=_help(models.ModelIn, "objective"))] = None
    metric: Annotated[sets.Metric | None, typer.Option(help="Default: accuracy, label_accuracy or r_squared")] = None
    epsilon: Annotated[list[float] | None, typer.Option(help="Targets to try with FILE; can be repeated")] = None
    l2: Annotated[list[float] | None, typer.Option(help="Regularisation to try; can be repeated with FILE")] = None
    second_moment: Annotated[float | None, typer.Option(help=_help(models.ModelIn, "second_moment"))] = None
    network: Annotated[
        Path | None, typer.Option(help="ONNX file of a public network that turns these numbers into the rows' features")
    ] = None
    network_sha256: Annotated[str | None, typer.Option(help="SHA-256 that the network file must have")] = None
    layers: Annotated[
        list[str] | None,
        typer.Option(help=f"{_help(models.TangentIn, 'layers')} May be given again; learns a tangent model."),
    ] = None
    rank: Annotated[int, typer.Option(help=_help(models.TangentIn, "rank"))] = 0
    offset: Annotated[bool, typer.Option(help=_help(models.TangentIn, "offset"))] = True
    network_seconds: Annotated[float, typer.Option(envvar="LETHE_NETWORK_SECONDS", hidden=True)] = _LIMITS.seconds
    network_memory_bytes: Annotated[int, typer.Option(envvar="LETHE_NETWORK_MEMORY_BYTES", hidden=True)] = (
        _LIMITS.memory_bytes
    )
    max_network_bytes: Annotated[int, typer.Option(envvar="LETHE_MAX_NETWORK_BYTES", hidden=True)] = _LIMITS.file_bytes

    def tangent(self) -> dict[str, Any] | None:
        """Return the tangent options, or None if none are set. Raises `InputInvalid` if they lack `--layers`."""
        if not self.layers and (self.rank or not self.offset):
            raise InputInvalid(
                "--rank and --no-offset need --layers.", [FieldError("layers", "expected, with --rank or --no-offset")]
            )
        return {"layers": self.layers, "rank": self.rank, "offset": self.offset} if self.layers else None

    def needs_a_file(self) -> bool:
        """Return True if any option that requires a file is set."""
        set_for_a_file = self.epsilon or self.second_moment or self.network or self.network_sha256 or self.tangent()
        return bool(set_for_a_file) or len(self.l2 or []) > 1

    def network_file(self) -> "NetworkFile | None":
        """Return the given network's file, or None. Raises `PreconditionFailed` if only its SHA-256 is given."""
        from lethe.features.tables.networks import NetworkFile

        if self.network is None:
            if self.network_sha256 is not None:
                raise PreconditionFailed("There is no network.", [FieldError("network", "expected its file")])
            return None
        limits = Limits(
            seconds=self.network_seconds, memory_bytes=self.network_memory_bytes, file_bytes=self.max_network_bytes
        )
        return NetworkFile(self.network, self.network_sha256, limits)


@derived.GROUPS["datasets"].app.command("preview")
@spread
def dataset_preview(
    file: TableFile,
    schema: Annotated[Path, typer.Option(exists=True, dir_okay=False, help=_help(datasets.TableIn, "schema_"))],
    trial: Trial,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Encode a table on this machine, and show an encoded row, the accuracy to expect and the cost of forgetting.

    Nothing is sent. The output is about the people in the table: do not publish it.
    """
    from lethe.features.tables.previewing import EPSILONS

    result = _preview(file, schema, trial, epsilons=EPSILONS)
    if as_json:
        gateway.show(result.to_json())
    else:
        _print(result)


def _preview(file: Path, schema: Path, trial: Trial, *, epsilons: Sequence[float]) -> "Preview":
    """Return a file's preview, showing a progress bar. `epsilons` are the targets tried by default."""
    from lethe.features.tables.previewing import preview

    try:
        document = json.loads(schema.read_text())
    except ValueError:
        raise SchemaInvalid(f"{schema} is not JSON.") from None
    with gateway.bar() as progress:
        return preview(
            file,
            schema=document,
            objective=trial.objective,
            metric=trial.metric,
            epsilons=trial.epsilon or epsilons,
            l2=trial.l2,
            second_moment=trial.second_moment,
            network=trial.network_file(),
            tangent=trial.tangent(),
            progress=progress,
        )


@derived.GROUPS["datasets"].app.command("infer")
def dataset_infer(
    file: TableFile,
    label: Annotated[str | None, typer.Option(help="Column with the class to predict")] = None,
    labels: Annotated[str | None, typer.Option(help="Instead of --label: column with several labels")] = None,
    target: Annotated[str | None, typer.Option(help="Instead of --label: column of numbers")] = None,
    counts: Annotated[str | None, typer.Option(help="Instead of --label: column of counts, 0, 1, 2, ...")] = None,
    separator: Annotated[str, typer.Option(help="Separator between labels")] = ";",
    subject: Annotated[str | None, typer.Option(help="Column with the person of each row")] = None,
    weight: Annotated[str | None, typer.Option(help="Column with the weight of each row")] = None,
    weight_bound: Annotated[float | None, typer.Option(help="Maximum weight of a row, chosen by you")] = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="NAME=MIN..MAX, numbers or dates chosen by you; can be repeated")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--values", help="NAME=ONE,OTHER: values chosen by you; can be repeated")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Confirm that no person in FILE can ever ask to be forgotten")
    ] = False,
) -> None:
    """Propose a schema from a public sample, or from ranges that you state, to be reviewed and edited.

    A schema is public and is kept after people are forgotten. The sample must therefore contain no rows of people who
    may ask to be forgotten: use a published or synthetic table with the same columns. The values of columns that you
    state are not read; if you state every column, FILE may contain those people's data.
    """
    from lethe.features.tables.inferring import infer

    stated = {name: _parse_range(name, text) for name, text in _pairs("range", ranges)}
    stated |= {
        name: {"kind": "categorical", "values": text.split(","), "unknown": "null"}
        for name, text in _pairs("values", names)
    }
    if (learned := label or labels or target or counts) in stated:
        stated[str(learned)].pop("kind")
        stated[str(learned)].pop("unknown", None)
    document = infer(
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
    gateway.show(document)
    if ignored := [name for name, spec in document["columns"].items() if spec.get("role") == "ignored"]:
        reason = "they have one value, or values that no column of a schema admits"
        typer.echo(f"warning: ignored: {', '.join(ignored)}; {reason}", err=True)


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts or []]
    if not all(name and value for name, _, value in pairs):
        raise InputInvalid(f"Expected --{option} with a name of a column.", [FieldError(option, "expected NAME=...")])
    return [(name, value) for name, _, value in pairs]


def _parse_range(name: str, text: str) -> dict[str, Any]:
    from lethe.features.tables.inferring import parse_range

    if settings := parse_range(text):
        return settings
    raise InputInvalid(
        f"Column {name} has no range.", [FieldError("range", "expected NAME=MIN..MAX, two numbers or two dates")]
    )


def _formatted(metric: str, value: float) -> str:
    """Format a metric's value, as a percentage if it is a share of rows."""
    return f"{value:.2%}" if metric in _SHARES else f"{value:.4g}"


def _print(preview: "Preview") -> None:
    metric = preview.metric.replace("_", " ")
    gateway.console.print(
        f"{preview.num_rows} rows, {preview.num_features} features; on {preview.held_out} held-out rows, the best "
        f"constant prediction has the {metric} {_formatted(preview.metric, preview.majority)}"
    )
    if preview.network is not None:
        rows = f"a tangent, in {preview.num_moved} parameters," if preview.num_moved else "features"
        gateway.console.print(f"{rows} of the network of SHA-256 {preview.network.sha256}")
    columns = Table("column", "kind", "features", "unknown", "clipped")
    for column in preview.columns:
        shares = (f"{column.unknown:.1%}", f"{column.clipped:.1%}")
        columns.add_row(column.name, column.kind, str(column.num_features), *shares)
    gateway.console.print(columns)
    low, middle, high = preview.lengths
    gateway.console.print(f"norms of rows before scaling to 1: 90 % from {low:.3g} to {high:.3g}, median {middle:.3g}")
    features = [f"{name}[{place}] {number:.3f}" for name, place, number in preview.row[:-1]][:_MAX_SHOWN_FEATURES]
    more = len(preview.row) - 1 - len(features)
    rest = f", and {more} more" if more else ""
    gateway.console.print(
        f"an encoded row of median norm: {', '.join(features)}{rest}; bias {preview.row[-1][2]:.3f}", markup=False
    )
    if preview.second_moment is not None:
        gateway.console.print(f"largest second moment of a batch: {preview.second_moment:.2f}")
    for warning in preview.warnings:
        gateway.console.print(f"warning: {warning}")
    if preview.scikit_learn is not None:
        gateway.console.print(
            f"scikit-learn, {preview.scikit_learn_model}: {_formatted(preview.metric, preview.scikit_learn)}"
        )
    _print_plans(preview)


_WIDTH = 12
_EIGHTHS = " ▏▎▍▌▋▊▉"
_UNITS = "learn, request: passes over the rows; noise: of a score, its standard deviation at most."


@derived.GROUPS["models"].app.command("plan")
@spread
def model_plan(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, show_default=False, help="Rows: .csv, .parquet or .npz"),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help=_help(datasets.TableIn, "schema_"))
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Instead of FILE: id of a dataset on the gateway")] = None,
    trial: Trial,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    url: gateway.Url = None,
    key: gateway.Key = None,
) -> None:
    """Compare accuracy, epsilon and passes over the rows before a model is created.

    For FILE, accuracy is measured on held-out rows on this machine, and nothing is sent; the output is about the people
    in the file, so do not publish it. For a dataset, accuracy is that of its models' versions on their evaluation data;
    the dataset's rows are not read. Noise and passes are computed from public numbers alone.
    """
    if file is not None and schema is not None and dataset is None:
        from lethe.features.insight import costs

        preview = _preview(file, schema, trial, epsilons=costs.EPSILONS)
        if as_json:
            gateway.show({name: preview.to_json()[name] for name in ("metric", "plans")})
        else:
            _print_plans(preview)
    elif dataset is not None and file is None and schema is None:
        if trial.needs_a_file():
            raise InputInvalid(
                "Targets and networks need FILE, and a dataset takes one l2.", [FieldError("epsilon", "expected FILE")]
            )
        with gateway.connect(url, key) as client:
            l2 = trial.l2[0] if trial.l2 else None
            plan = client.accounting.plan(dataset, objective=trial.objective, metric=trial.metric, l2=l2)
        gateway.show(plan) if as_json else _print_plan(plan)
    else:
        raise InputInvalid(
            "Name a FILE and its --schema, or a --dataset.", [FieldError("file", "expected one of them")]
        )


def _print_plans(preview: "Preview") -> None:
    metric = sets.Metric(preview.metric)
    names = ("epsilon", "l2", metric.replace("_", " "), Column(no_wrap=True), "no noise", "noise", "learn", "request")
    table = Table(*names, box=box.SIMPLE_HEAD)
    low, high = _ends([plan.accuracy for plan in preview.plans])
    for plan in preview.plans:
        table.add_row(
            f"{plan.epsilon:g}",
            f"{plan.l2:.2g}",
            _formatted(metric, plan.accuracy),
            bar_of(plan.accuracy, low, high),
            _formatted(metric, plan.accuracy_without_noise),
            f"{plan.noise:.2f}",
            f"{plan.learn_passes:.1f}",
            _passes(plan.request_passes),
        )
    gateway.console.print(table)
    better = ": less is better" if metric.less_is_better else ""
    gateway.console.print(f"Bars are from {_formatted(metric, low)} to {_formatted(metric, high)}{better}. {_UNITS}")


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
    gateway.console.print(table)
    gateway.console.print(_UNITS)
    _print_methods(plan)
    if not plan.measured:
        gateway.console.print("No model of this dataset has been measured on evaluation data: accuracy is not known.")
        return
    measured = Table(
        "model", "version", "epsilon", "l2", "passes", plan.measured[0].metric.replace("_", " "), Column(no_wrap=True)
    )
    low, high = _ends([version.value for version in plan.measured])
    for version in sorted(plan.measured, key=lambda version: (version.epsilon, version.model_id, version.version)):
        measured.add_row(
            version.name,
            f"{version.version}{' live' if version.live else ''}",
            f"{version.epsilon:g}",
            f"{version.l2:.2g}",
            f"{version.passes:.1f}",
            _formatted(version.metric, version.value),
            bar_of(version.value, low, high),
        )
    gateway.console.print(measured)


def _print_methods(plan: PlanOut) -> None:
    table = Table("method", "learn", "request", "deletion", "adaptive after 1, 10, 100", "release")
    for method in plan.methods:
        if method.adaptive is None:
            gateway.console.print(f"{method.method}: {method.refused}")
            continue
        table.add_row(
            method.method,
            _passes(method.learn_passes),
            _passes(method.request_passes),
            f"{method.deletion:.2g}",
            ", ".join(f"{epsilon:.2f}" for epsilon in method.adaptive),
            f"{method.release:.2f}",
        )
    gateway.console.print(table)
    gateway.console.print(f"At epsilon 1, by `adaptive` after 10 requests, the method to take: {plan.takes or 'none'}.")


def bar_of(value: float, low: float, high: float) -> str:
    """Return a bar for `value`, drawn to an eighth of a character, empty at `low` and full at `high`."""
    eighths = round(max(0.0, value - low) / (high - low) * _WIDTH * 8) if high > low else _WIDTH * 8
    full, part = divmod(eighths, 8)
    return "█" * full + _EIGHTHS[part].strip()


def _ends(values: list[float]) -> tuple[float, float]:
    """Return the range (low, high) of a column of bars. `high` is the maximum; `low` is the minimum less a tenth of the
    spread, but at least 0 if no value is negative."""
    low, high = min(values), max(values)
    bottom = low - (high - low) / 10
    return (bottom if low < 0 else max(0.0, bottom)), high


def _passes(count: float | None) -> str:
    return "out of reach" if count is None else f"{count:.1f}"
