"""Dry runs on the caller's own machine: how a schema encodes a table, and what forgetting would cost.

Models are trained on some rows with the mechanism's noisy steps, starting at the minimiser, where training ends, and
are measured on the others. Every number depends on the rows, so none belongs in a schema or a published document.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lethe.client import files, waiting
from lethe.contract import fields, problems
from lethe.encoding.columns import refuse
from lethe.encoding.rows import Labelled, Schema, as_factors, labels_in, unit_rows, weights_in
from lethe.encoding.schema import parse_schema
from lethe.encoding.spread import Spread
from lethe.features.insight import costs
from lethe.features.tables import fitting, inferring, networks
from lethe.features.tables.rivals import scikit_learn
from lethe.proof import calibration, losses

EPSILONS = (0.5, 1.0, 2.0, 4.0)
HELD_OUT = 0.25
"""Fraction of the rows on which models are measured."""
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSeen:
    """Schema column, with the shares of rows whose value is `unknown` (or missing) or `clipped`."""

    name: str
    kind: str
    num_features: int
    unknown: float
    clipped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Result of a dry run. All accuracies are values of `metric`.

    `lengths`: the 5th, 50th and 95th percentiles of row norms before scaling. `row`: the nonzero entries of the encoded
    row of median norm, each as column, position in the column and number, with the bias last. `second_moment`: the
    largest eigenvalue of the second moment of any random batch; None for a tangent model. `majority`: the accuracy of
    the best constant prediction. `scikit_learn`: the accuracy of the tuned `scikit_learn_model` on the same features;
    None for log_loss, constant training values or without scikit-learn. `network`: the network used. `lengths`, `row`
    and warnings describe its outputs or, for a tangent model (with `num_moved` trained parameters), its inputs."""

    num_rows: int
    num_features: int
    held_out: int
    objective: str
    metric: str
    columns: tuple[ColumnSeen, ...]
    lengths: tuple[float, float, float]
    row: tuple[tuple[str, int, float], ...]
    second_moment: float | None
    warnings: tuple[str, ...]
    majority: float
    scikit_learn_model: str | None
    scikit_learn: float | None
    plans: tuple[fitting.FittingPlan, ...]
    network: networks.NetworkSeen | None = None
    num_moved: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def preview(
    table: str | Path | files.Frame,
    *,
    schema: dict[str, Any],
    objective: str | None = None,
    metric: str | None = None,
    epsilons: Sequence[float] = EPSILONS,
    l2: Sequence[float] | None = None,
    delta: float | None = None,
    second_moment: float | None = None,
    seed: int = 0,
    network: networks.NetworkFile | str | Path | None = None,
    tangent: Mapping[str, Any] | None = None,
    progress: waiting.Progress = lambda status, done, total: None,
) -> Preview:
    """Encode a table with the schema, then fit and evaluate models on its rows, all on this machine.

    `objective`: by default what a gateway would choose for the dataset. `metric`: by default accuracy, label_accuracy
    or r_squared; otherwise log_loss (classes or labels), exact_match (labels), mean_absolute_error (a target, in its
    units) or mean_poisson_deviance (counts). `l2`: by default the value for the number of rows, a quarter of it, and
    four times it. `delta`: by default 1 / n^1.1. `second_moment`: the bound stated for the models. `seed`: for the
    split and the noise. `network`: ONNX file of the public network that computes features from encoded rows, in a
    separate process as on a gateway (extra `onnx`); a `NetworkFile` adds a SHA-256 and limits. `tangent`: train a
    tangent model of the network with these `layers`, `rank`, `seed`, `least_norm` and `offset`, as in
    `client.models.create` (extra `tangents`). `progress` receives the numbers of encoded rows and fitted models.

    Raises `SchemaInvalid`, `RowInvalid`, `DatasetUnusable`, `NetworkInvalid`, `NetworkFailed` and `PreconditionFailed`
    as a gateway would, and `InputInvalid` for a missing file.
    """
    parsed = parse_schema(schema)
    learned_by = _choose("objective", objective, _objectives(parsed), "does not learn what the schema has")
    measured_by = _choose("metric", metric, fitting.metrics_of(learned_by), f"is not available for {learned_by}")
    network_file = None if network is None else networks.opened(network, parsed)
    if network_file is None and tangent is not None:
        raise problems.PreconditionFailed("There is no network.", [problems.FieldError("network", "expected its file")])
    layers = None
    if network_file and tangent is not None:
        layers = networks.chosen_layers(network_file, tangent, learned_by, second_moment)
    columns, encoded = _encoded(table, parsed)
    num_rows = len(encoded.features)
    encoder = network_file if layers is None else None
    raw = encoder.features(encoded.raw, progress) if encoder else encoded.raw
    unit = unit_rows(raw) if encoder else encoded.features
    places = {"network": slice(0, raw.shape[1])} if encoder else parsed.places
    num_classes = 1 if parsed.target else len(parsed.classes)
    num_scores = losses.num_weight_rows(num_classes, learned_by)
    rows: fitting.FittingRows = fitting.LinearRows(unit.astype(np.float64), num_scores)
    if network_file and layers:
        rows = networks.rows_of(network_file, layers, unit, num_scores=num_scores, progress=progress)
    random = np.random.default_rng(seed)
    order = random.permutation(num_rows)
    num_test = max(1, round(num_rows * HELD_OUT))
    test, train = order[:num_test], order[num_test:]
    lengths = np.hypot(np.linalg.norm(raw, axis=1), 1.0)
    low, middle, high = np.quantile(lengths, [0.05, 0.5, 0.95]).tolist()
    learned = fitting.Learned.of(
        learned_by,
        labels_in(encoded.labels),
        num_classes,
        metric=measured_by,
        half_range=(parsed.target.high - parsed.target.low) / 2 if parsed.target else 1.0,
    )
    weights = weights_in(encoded.labels)
    factors = None if weights is None else as_factors(weights).astype(np.float64)
    problem = fitting.FittingProblem(rows, learned, train, test, factors)
    rival = scikit_learn(raw, learned, train, test, factors)
    delta = delta or float(len(train) ** -1.1)
    tried = [
        calibration.ModelSettings(epsilon=epsilon, delta=delta, l2=regularisation, second_moment=second_moment)
        for epsilon in epsilons
        for regularisation in l2 or costs.around(len(train), epsilon, learned_by)
    ]
    plans: list[fitting.FittingPlan] = []
    for settings in tried:
        progress("fitting", len(plans), len(tried))
        plans.append(problem.plan(settings, random))
    return Preview(
        num_rows=num_rows,
        num_features=raw.shape[1],
        held_out=len(test),
        objective=learned_by,
        metric=learned.metric,
        columns=tuple(_seen(parsed, columns, encoded.num_unknown.tolist(), num_rows)),
        lengths=(low, middle, high),
        row=_named(places, unit[np.argsort(lengths)[num_rows // 2]]),
        second_moment=None if layers else problem.second_moment(),
        warnings=tuple(Spread.of(raw).warnings(_each(raw) if encoder else places)),
        majority=learned.at(test).majority(),
        scikit_learn_model=rival[0] if rival else None,
        scikit_learn=rival[1] if rival else None,
        plans=tuple(plans),
        network=network_file.seen if network_file else None,
        num_moved=rows.shape[1] if layers else None,
    )


def _encoded(table: str | Path | files.Frame, schema: Schema) -> tuple[dict[str, Any], Labelled]:
    """Return a table's columns and its encoded records."""
    columns = inferring.columns_of(table)
    missing = [name for name in schema.used if name not in columns]
    refuse(problems.SchemaInvalid, [problems.FieldError(f"column {name}", "is missing") for name in missing])
    num_rows = len(columns[schema.label])
    if num_rows == 0:
        raise problems.DatasetUnusable("There are no rows.")
    encoded = schema.encode_labelled(columns, range(1, num_rows + 1))
    schema.check_known(encoded.num_unknown, num_rows)
    return columns, encoded


def _objectives(schema: Schema) -> list[losses.Objective]:
    """Return the objectives available for a schema's labels or target, the default first."""
    if schema.target:
        counts = [losses.Objective.POISSON_REGRESSION] if schema.target.counts else []
        return [*counts, losses.Objective.HUBER_REGRESSION, losses.Objective.LEAST_SQUARES]
    if schema.separator:
        return [losses.Objective.MULTILABEL_LOGISTIC_REGRESSION]
    return [
        losses.Objective.LOGISTIC_REGRESSION,
        *([losses.Objective.SMOOTHED_HINGE] if len(schema.classes) == 2 else []),
    ]


def _choose(field: str, name: str | None, allowed: Sequence[E], refusal: str) -> E:
    """Return the member of `allowed` called `name`, or the first if `name` is None. Raises `PreconditionFailed`."""
    if name is None:
        return allowed[0]
    if name not in allowed:
        raise problems.PreconditionFailed(
            f"The {field} {refusal}.", [problems.FieldError(field, fields.expected(allowed, found=name))]
        )
    return type(allowed[0])(name)


def _each(features: fitting.Floats) -> dict[str, slice]:
    """Return the position of each of a network's features, keyed by the gateway's name for the feature."""
    return {f"feature[{place}]": slice(place, place + 1) for place in range(features.shape[1])}


def _named(features: Mapping[str, slice], row: fitting.Floats) -> tuple[tuple[str, int, float], ...]:
    named = [
        (name, position, number)
        for name, places in features.items()
        for position, number in enumerate(row[places].tolist())
        if number
    ]
    return (*named, ("bias", 0, float(row[-1])))


def _seen(schema: Schema, columns: dict[str, Any], num_unknown: list[int], num_rows: int) -> list[ColumnSeen]:
    return [
        ColumnSeen(
            name=column.name,
            kind=column.kind,
            num_features=column.width,
            unknown=unknown / num_rows,
            clipped=column.num_clipped(columns[column.name]) / num_rows,
        )
        for column, unknown in zip(schema.features, num_unknown, strict=True)
    ]
