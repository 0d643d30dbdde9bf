"""A dry run on the caller's own machine: what a table becomes once it is encoded, and what forgetting would cost it.

A part of the rows is learned as the gateway would learn it: the mechanism's own noisy steps, from the minimiser on,
where learning ends. It is measured on the other part. Every number is about the rows, so none belongs into a schema or
a document that others see.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lethe.contract.problems import DatasetUnusable, FieldError, PreconditionFailed, SchemaInvalid
from lethe.contract.spelling import expected
from lethe.encoding.faults import refuse
from lethe.encoding.rows import Schema
from lethe.encoding.schema import parse_schema
from lethe.encoding.spread import Spread
from lethe.encoding.weights import as_factors, labels_in, weights_in
from lethe.frames import Frame
from lethe.proof.losses import Objective
from lethe.tables.fitting import Floats, Learned, Plan, Problem
from lethe.tables.reading import columns_of
from lethe.tables.rivals import scikit_learn
from lethe.theorems import costs

EPSILONS = (0.5, 1.0, 2.0, 4.0)
HELD_OUT = 0.25


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
    the `r_squared` of a target. `lengths`: of the rows before each is scaled to norm 1, the 5th, 50th and 95th of a
    hundred. `row`: one of middle length, encoded, as column, place in the column and number, of what is not 0; the bias
    last. `second_moment`: the largest eigenvalue of the second moment of any batch, of batches drawn at random.
    `majority`: the accuracy of saying the same of every row. `scikit_learn`: that of its tuned `scikit_learn_model` on
    the same features; None where it is not installed."""

    num_rows: int
    num_features: int
    held_out: int
    objective: str
    metric: str
    columns: tuple[ColumnSeen, ...]
    lengths: tuple[float, float, float]
    row: tuple[tuple[str, int, float], ...]
    second_moment: float
    warnings: tuple[str, ...]
    majority: float
    scikit_learn_model: str | None
    scikit_learn: float | None
    plans: tuple[Plan, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def preview(
    table: str | Path | Frame,
    *,
    schema: dict[str, Any],
    objective: str | None = None,
    epsilons: Sequence[float] = EPSILONS,
    l2: Sequence[float] | None = None,
    delta: float | None = None,
    second_moment: float | None = None,
    seed: int = 0,
) -> Preview:
    """Encode a table by the schema, and fit and measure models of it, all in this process.

    `objective`: the default for what the schema learns, or another that learns it; `l2`: the default for so many rows,
    a quarter of it and four times it, unless others are asked for; `delta`: 1 / n^1.1 as by default; `second_moment`:
    the bound that the models state. `seed`: of the split and the noise.

    Raises `SchemaInvalid`, `RowInvalid`, `DatasetUnusable` and `PreconditionFailed` as the gateway would.
    """
    parsed = parse_schema(schema)
    chosen = _objective(parsed, objective)
    columns = columns_of(table)
    missing = [name for name in parsed.used if name not in columns]
    refuse(SchemaInvalid, [FieldError(f"column {name}", "is missing") for name in missing])
    num_rows = len(columns[parsed.label])
    if num_rows == 0:
        raise DatasetUnusable("There are no rows.")
    found = parsed.encode_labelled(columns, range(1, num_rows + 1))
    parsed.check_known(found.num_unknown, num_rows)
    random = np.random.default_rng(seed)
    order = random.permutation(num_rows)
    cut = max(1, round(num_rows * HELD_OUT))
    test, train = order[:cut], order[cut:]
    raw = found.raw
    lengths = np.hypot(np.linalg.norm(raw, axis=1), 1.0)
    low, middle, high = np.quantile(lengths, [0.05, 0.5, 0.95]).tolist()
    learned = Learned.of(chosen, labels_in(found.labels), 1 if parsed.target else len(parsed.classes))
    rows = found.features.astype(np.float64)
    weights = weights_in(found.labels)
    factors = None if weights is None else as_factors(weights).astype(np.float64)
    problem = Problem(rows, learned, train, test, factors)
    rival = scikit_learn(raw, learned, train, test, factors)
    return Preview(
        num_rows=num_rows,
        num_features=parsed.num_features,
        held_out=len(test),
        objective=chosen,
        metric=learned.metric,
        columns=tuple(_seen(parsed, columns, found.num_unknown.tolist(), num_rows)),
        lengths=(low, middle, high),
        row=_named(parsed, rows[np.argsort(lengths)[num_rows // 2]]),
        second_moment=problem.second_moment(),
        warnings=tuple(Spread.of(raw).warnings(parsed.places)),
        majority=learned.at(test).majority(),
        scikit_learn_model=rival[0] if rival else None,
        scikit_learn=rival[1] if rival else None,
        plans=tuple(
            problem.plan(epsilon, one, delta or float(len(train) ** -1.1), second_moment, random)
            for epsilon in epsilons
            for one in l2 or costs.around(len(train), epsilon, chosen)
        ),
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


def _named(schema: Schema, row: Floats) -> tuple[tuple[str, int, float], ...]:
    named = [
        (name, at, number)
        for name, places in schema.places.items()
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
