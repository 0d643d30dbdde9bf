"""A dry run on the caller's own machine: what a table becomes once it is encoded, and what forgetting would cost it.

A part of the rows is learned as the gateway would learn it: the mechanism's own noisy steps, from the minimiser on,
where learning ends. It is measured on the other part. Every number is about the rows, so none belongs into a schema or
a document that others see.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lethe.contract.problems import DatasetUnusable, FieldError, PreconditionFailed, SchemaInvalid
from lethe.contract.sets import Metric
from lethe.contract.spelling import expected
from lethe.encoders.limits import Limits
from lethe.encoding.faults import refuse
from lethe.encoding.rows import Schema, unit_rows
from lethe.encoding.schema import parse_schema
from lethe.encoding.spread import Spread
from lethe.encoding.weights import as_factors, labels_in, weights_in
from lethe.frames import Frame
from lethe.proof.losses import Objective, num_weight_rows
from lethe.tables import networks, tangents
from lethe.tables.fitting import Floats, Learned, LinearRows, Plan, Problem, Rows, metrics_of
from lethe.tables.networks import NetworkSeen
from lethe.tables.reading import columns_of
from lethe.tables.rivals import scikit_learn
from lethe.theorems import costs
from lethe.waiting import Progress

EPSILONS = (0.5, 1.0, 2.0, 4.0)
HELD_OUT = 0.25
_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSeen:
    """Shares of the rows in which a column is missing or unknown, and clipped."""

    name: str
    kind: str
    num_features: int
    unknown: float
    clipped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """`metric`: that all accuracies are of, by the name that the gateway has for it: `accuracy`, `label_accuracy`, or
    the `r_squared` of a target, unless another was asked for. `lengths`: of the rows before each is scaled to norm 1,
    the 5th, 50th and 95th of a hundred. `row`: one of middle length, encoded, as column, place in the column and
    number, of what is not 0; the bias last. `second_moment`: the largest eigenvalue of the second moment of any batch,
    of batches drawn at random; None of a tangent model, which states none. `majority`: the accuracy of saying the
    same of every row. `scikit_learn`: that of its tuned `scikit_learn_model` on the same features; None where it is
    not installed, and of the log loss. `network`: the one whose features the rows are, if there is one: then
    lengths, row and warnings are about these; or the one of a tangent model, of `num_moved` parameters: then they
    are about what the network takes."""

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
    plans: tuple[Plan, ...]
    network: NetworkSeen | None = None
    num_moved: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def preview(
    table: str | Path | Frame,
    *,
    schema: dict[str, Any],
    objective: str | None = None,
    metric: str | None = None,
    epsilons: Sequence[float] = EPSILONS,
    l2: Sequence[float] | None = None,
    delta: float | None = None,
    second_moment: float | None = None,
    seed: int = 0,
    network: str | Path | None = None,
    network_sha256: str | None = None,
    tangent: Mapping[str, Any] | None = None,
    limits: Limits = _LIMITS,
    progress: Progress = lambda status, done, total: None,
) -> Preview:
    """Encode a table by the schema, and fit and measure models of it, all on this machine.

    `objective`: the default for what the schema learns, or another that learns it; `metric`: as in `Preview`, or
    `log_loss` (of the classes, or the mean of all labels), `exact_match` of several labels, `mean_absolute_error` of a
    target in its units, `mean_poisson_deviance` of counts; `l2`: the default for so many rows,
    a quarter of it and four times it, unless others are asked for; `delta`: 1 / n^1.1 as by default; `second_moment`:
    the bound that the models state. `seed`: of the split and the noise. `network`: the ONNX file of the public network
    whose features of these numbers are the rows, run within `limits` in a process apart as the gateway runs it (extra
    `onnx`); `network_sha256`: that it must have. `tangent`: learn a tangent model of it, whose `layers`,
    `rank`, `seed`, `least_norm` and `offset` are as those of a model (extra `tangents`). `progress`: told how many rows
    are encoded, and models fitted.

    Raises `SchemaInvalid`, `RowInvalid`, `DatasetUnusable`, `NetworkInvalid`, `NetworkFailed` and `PreconditionFailed`
    as the gateway would; `InputInvalid` for a file that is not there.
    """
    parsed = parse_schema(schema)
    chosen = _objective(parsed, objective)
    measured = _metric(chosen, metric)
    opened = None if network is None else networks.opened(network, parsed, sha256=network_sha256, limits=limits)
    if opened is None and (tangent is not None or network_sha256 is not None):
        raise PreconditionFailed("There is no network.", [FieldError("network", "expected its file")])
    moved = None
    if opened and tangent is not None:
        moved = tangents.chosen_layers(opened, tangent, chosen, second_moment)
    columns = columns_of(table)
    missing = [name for name in parsed.used if name not in columns]
    refuse(SchemaInvalid, [FieldError(f"column {name}", "is missing") for name in missing])
    num_rows = len(columns[parsed.label])
    if num_rows == 0:
        raise DatasetUnusable("There are no rows.")
    found = parsed.encode_labelled(columns, range(1, num_rows + 1))
    parsed.check_known(found.num_unknown, num_rows)
    encoder = opened if tangent is None else None
    raw = encoder.features(found.raw, progress) if encoder else found.raw
    rows = unit_rows(raw) if encoder else found.features
    places = {"network": slice(0, raw.shape[1])} if encoder else parsed.places
    num_classes = 1 if parsed.target else len(parsed.classes)
    num_scores = num_weight_rows(num_classes, chosen)
    design: Rows = LinearRows(rows.astype(np.float64), num_scores)
    if opened and moved:
        design = tangents.rows_of(opened, moved, rows, num_scores=num_scores, progress=progress)
    random = np.random.default_rng(seed)
    order = random.permutation(num_rows)
    cut = max(1, round(num_rows * HELD_OUT))
    test, train = order[:cut], order[cut:]
    lengths = np.hypot(np.linalg.norm(raw, axis=1), 1.0)
    low, middle, high = np.quantile(lengths, [0.05, 0.5, 0.95]).tolist()
    learned = Learned.of(
        chosen,
        labels_in(found.labels),
        num_classes,
        metric=measured,
        half_range=(parsed.target.high - parsed.target.low) / 2 if parsed.target else 1.0,
    )
    weights = weights_in(found.labels)
    factors = None if weights is None else as_factors(weights).astype(np.float64)
    problem = Problem(design, learned, train, test, factors)
    rival = scikit_learn(raw, learned, train, test, factors)
    settings = [(epsilon, one) for epsilon in epsilons for one in l2 or costs.around(len(train), epsilon, chosen)]
    plans: list[Plan] = []
    for epsilon, one in settings:
        progress("fitting", len(plans), len(settings))
        plans.append(problem.plan(epsilon, one, delta or float(len(train) ** -1.1), second_moment, random))
    return Preview(
        num_rows=num_rows,
        num_features=raw.shape[1],
        held_out=len(test),
        objective=chosen,
        metric=learned.metric,
        columns=tuple(_seen(parsed, columns, found.num_unknown.tolist(), num_rows)),
        lengths=(low, middle, high),
        row=_named(places, rows[np.argsort(lengths)[num_rows // 2]]),
        second_moment=None if moved else problem.second_moment(),
        warnings=tuple(Spread.of(raw).warnings(_each(raw) if encoder else places)),
        majority=learned.at(test).majority(),
        scikit_learn_model=rival[0] if rival else None,
        scikit_learn=rival[1] if rival else None,
        plans=tuple(plans),
        network=opened.seen if opened else None,
        num_moved=design.shape[1] if moved else None,
    )


def _objective(schema: Schema, asked: str | None) -> Objective:
    """Raises `PreconditionFailed` for one that does not learn what the schema has."""
    if schema.target:
        allowed = [Objective.HUBER_REGRESSION, Objective.LEAST_SQUARES]
        if schema.target.counts:
            allowed = [Objective.POISSON_REGRESSION, *allowed]
    elif schema.separator:
        allowed = [Objective.MULTILABEL_LOGISTIC_REGRESSION]
    else:
        allowed = [Objective.LOGISTIC_REGRESSION, *([Objective.SMOOTHED_HINGE] if len(schema.classes) == 2 else [])]
    if asked is None:
        return allowed[0]
    if asked not in allowed:
        raise PreconditionFailed(
            "The objective does not learn what the schema has.",
            [FieldError("objective", expected(allowed, found=asked))],
        )
    return Objective(asked)


def _metric(objective: Objective, asked: str | None) -> Metric:
    """Raises `PreconditionFailed` for one that is not measured of the objective here."""
    known = metrics_of(objective)
    if asked is None:
        return known[0]
    if asked not in known:
        raise PreconditionFailed(
            f"{objective} is not measured so here.", [FieldError("metric", expected(known, found=asked))]
        )
    return Metric(asked)


def _each(features: Floats) -> dict[str, slice]:
    """Each feature of a network by its place, as the gateway names it."""
    return {f"feature[{place}]": slice(place, place + 1) for place in range(features.shape[1])}


def _named(features: Mapping[str, slice], row: Floats) -> tuple[tuple[str, int, float], ...]:
    named = [
        (name, at, number)
        for name, places in features.items()
        for at, number in enumerate(row[places].tolist())
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
