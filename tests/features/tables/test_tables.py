"""Tables on the caller's machine: frames and files are equivalent, schemas are proposed, and dry runs match the
gateway."""

import datetime
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from app.rows import ingest
from lethe.client.files import Frame, to_parquet
from lethe.contract.problems import DatasetUnusable, InputInvalid, PreconditionFailed, RowInvalid, SchemaInvalid
from lethe.encoding.schema import parse_schema
from lethe.encoding.targets import TargetColumn
from lethe.features.tables.fitting import Learned
from lethe.features.tables.inferring import columns_of, infer
from lethe.features.tables.previewing import preview
from lethe.proof.losses import Objective

ROWS: dict[str, list[Any]] = {
    "age": [31, None, 45, 28],
    "city": ["Bonn", "Lyon", "Bonn", None],
    "since": ["2020-01-02", "2021-05-06", "2022-01-01", "2023-01-01"],
    "e": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
    "y": ["no", "yes", "no", "yes"],
    "who": ["p1", "p2", "p3", "p4"],
}
SCHEMA = {
    "columns": {
        "age": {"kind": "standard", "center": 40, "scale": 10, "unknown": "null"},
        "city": {"kind": "hashed", "features": 8, "unknown": "null"},
        "since": {"kind": "datetime", "min": "2020-01-01", "max": "2030-01-01"},
        "e": {"kind": "vector", "length": 2},
        "y": {"role": "label", "values": ["no", "yes"]},
        "who": {"role": "subject"},
    }
}


def frames() -> dict[str, Frame]:
    dates = [pd.Timestamp(day).date() for day in ROWS["since"]]
    return {
        "pandas": pd.DataFrame(ROWS),
        "pandas with an index": pd.DataFrame(ROWS).set_index(pd.Index([9, 7, 5, 3])),
        "pandas with categories": pd.DataFrame(ROWS).astype({"city": "category", "y": "category"}),
        "polars": pl.DataFrame(ROWS),
        "polars with dates": pl.DataFrame(ROWS | {"since": dates}),
        "arrow": pa.table(ROWS),
    }


@pytest.mark.parametrize("kind", frames())
def test_gateway_and_caller_encode_data_frames_identically(tmp_path: Path, kind: str) -> None:
    """A data frame from any supported library is converted to a file that the gateway encodes to the same rows as the
    caller's machine does."""
    frame, schema = frames()[kind], parse_schema(SCHEMA)
    expected = schema.encode(columns_of(pa.table(ROWS)))
    np.testing.assert_array_equal(schema.encode(columns_of(frame)), expected)
    (tmp_path / "sent.parquet").write_bytes(to_parquet(frame).getvalue())
    with (tmp_path / "sent.parquet").open("rb", buffering=0) as file:
        [batch] = ingest.read(file, kind="parquet", schema=schema, folder=tmp_path)
    np.testing.assert_array_equal(batch.features, expected)
    assert batch.subjects == ROWS["who"]


def test_all_file_formats_are_encoded_identically(tmp_path: Path) -> None:
    """The same rows are encoded identically from CSV, Parquet and npz. A file of another kind is refused."""
    pq.write_table(pa.table(ROWS), tmp_path / "rows.parquet")
    text = pd.DataFrame(ROWS | {"e": [json.dumps(one) for one in ROWS["e"]]})
    text.to_csv(tmp_path / "rows.csv", index=False)
    arrays = ROWS | {"age": [31, np.nan, 45, 28], "city": ["Bonn", "Lyon", "Bonn", ""]}
    np.savez(tmp_path / "rows.npz", **{name: np.array(values) for name, values in arrays.items()})
    schema = parse_schema(SCHEMA)
    expected = schema.encode(columns_of(pa.table(ROWS)))
    for name in ("rows.csv", "rows.parquet", "rows.npz"):
        np.testing.assert_array_equal(schema.encode(columns_of(tmp_path / name)), expected)
    with pytest.raises(InputInvalid, match="must end in"):
        columns_of(tmp_path / "rows.xlsx")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """A file that is empty, truncated, ragged or in a different format than its suffix indicates is refused, and the
    error quotes no part of it."""
    np.savez_compressed(tmp_path / "whole.npz", x=np.arange(1000))
    whole = (tmp_path / "whole.npz").read_bytes()
    for name, content in (
        ("a.csv", b""),
        ("b.csv", b"age,y\n7319\n"),
        ("c.csv", b'age,y\n"7319'),
        ("d.csv", b"age,y\n\xff7319,a\n"),
        ("e.parquet", b"7319"),
        ("f.npz", b"7319"),
        ("g.npz", whole[: len(whole) // 2]),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputInvalid, match="is damaged or is not a") as refusal:
            columns_of(tmp_path / name)
        assert "7319" not in refusal.value.line


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"age;y\n7319;a\n", "has semicolons"), ("age,y\n7319,a\n".encode("utf-16"), "is in UTF-16")],
)
def test_an_unreadable_spreadsheet_csv_is_refused_with_advice(tmp_path: Path, content: bytes, fault: str) -> None:
    """A CSV file with an unexpected separator or encoding is refused with an error that states the detected format and
    how to save the file."""
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(InputInvalid, match=f"{fault}.*; save it as CSV in UTF-8") as refusal:
        columns_of(tmp_path / "rows.csv")
    assert "7319" not in refusal.value.line


def test_a_schema_is_proposed() -> None:
    """In a proposed schema, numbers are standardised with parameters rounded to two digits, small sets of integers or
    texts are listed, and longer texts are hashed; prose is hashed word by word. Constant columns are ignored, and
    dates, vectors and columns with many missing values are recognised."""
    random = np.random.default_rng(0)
    rows = 200
    table = pd.DataFrame(
        {
            "income": random.normal(52_345, 9_876, rows),
            "children": random.integers(0, 5, rows).astype(float),
            "city": random.choice(["Bonn", "Lyon"], rows),
            "street": [f"street {one}" for one in range(rows)],
            "letter": [f"dear all, this is letter number {one}" for one in range(rows)],
            "since": pd.date_range("2020-01-01", periods=rows).strftime("%Y-%m-%d"),
            "embedding": list(random.normal(size=(rows, 3))),
            "country": "DE",
            "gap": [None if one % 3 else float(one) for one in range(rows)],
            "y": random.integers(0, 2, rows),
            "who": [f"p{one}" for one in range(rows)],
        }
    )
    columns = infer(table, label="y", subject="who")["columns"]
    assert columns["income"]["kind"] == "standard"
    assert columns["income"]["center"] == round(columns["income"]["center"], -2)
    assert 50_000 < columns["income"]["center"] < 55_000
    assert columns["children"] == {"kind": "categorical", "values": ["0", "1", "2", "3", "4"], "unknown": "null"}
    assert columns["city"]["values"] == ["Bonn", "Lyon"]
    assert columns["street"]["kind"] == "hashed"
    assert columns["letter"]["kind"] == "text"
    assert columns["since"] == {"kind": "datetime", "min": "2020-01-01", "max": "2020-07-19", "outside": "clip"}
    assert (columns["embedding"]["kind"], columns["embedding"]["length"]) == ("vector", 3)
    assert columns["country"] == {"role": "ignored"}
    assert columns["gap"]["unknown"] == "null"
    assert columns["y"] == {"role": "label", "values": ["0", "1"]}
    assert parse_schema({"columns": columns}).encode(columns_of(table)).shape[0] == rows
    with pytest.raises(InputInvalid, match="no column for the label"):
        infer(table, label="z")


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_data_frame_types_are_recognised(library: Callable[..., Frame]) -> None:
    """Dates, times, decimals and lists are recognised in data frames from any library, even with missing values. Types
    that no schema accepts are ignored."""
    days = [datetime.date(2020, 1, 1 + place) for place in range(30)]
    moments = [datetime.datetime.combine(day, datetime.time(5, 6, 7, 8)) for day in days]
    rows = {
        "day": days,
        "at": moments,
        "since": [None, *days[1:]],
        "price": [Decimal(f"{place}.5") for place in range(30)],
        "rooms": [Decimal(place % 3) for place in range(30)],
        "e": [None, *([float(place), 1.0] for place in range(1, 30))],
        "tags": [["a"], ["b"]] * 15,
        "lasted": [datetime.timedelta(days=place) for place in range(30)],
        "nothing": [None] * 30,
        "y": [place * 1.5 for place in range(30)],
    }
    frame = library(rows)
    columns = infer(frame, target="y")["columns"]
    january = {"kind": "datetime", "min": "2020-01-01", "max": "2020-01-31", "outside": "clip"}
    assert columns["day"] == columns["at"] == january
    assert columns["since"] == january | {"min": "2020-01-02", "unknown": "null"}
    assert columns["price"] == {"kind": "standard", "center": 15.0, "scale": 11.0}
    assert columns["rooms"] == {"kind": "categorical", "values": ["0", "1", "2"], "unknown": "null"}
    assert (columns["e"]["kind"], columns["e"]["length"]) == ("vector", 2)
    assert [name for name, spec in columns.items() if spec == {"role": "ignored"}] == ["tags", "lasted", "nothing"]
    assert columns["y"] == {"role": "target", "min": 0.0, "max": 44.0, "outside": "clip"}
    present = {name: spec for name, spec in columns.items() if name != "e"}
    assert parse_schema({"columns": present}).encode_labelled(columns_of(frame), range(30)).labels.shape == (30,)


def test_targets_and_labels_are_proposed() -> None:
    """Multiple labels are listed individually, and a target's proposed range is the sample's range, rounded outwards. A
    label column without values, a target with missing values and more than one target are refused."""
    table = pd.DataFrame(
        {"x": range(20), "topics": ["a;b", "b", "", "c; a"] * 5, "rent": [123.4, 987.6] * 10, "gap": [1.0, None] * 10}
    )
    said = {"role": "labels", "values": ["a", "b", "c"], "separator": ";"}
    assert infer(table, labels="topics")["columns"]["topics"] == said
    said = {"role": "target", "min": 120.0, "max": 990.0, "outside": "clip"}
    assert infer(table, target="rent")["columns"]["rent"] == said
    with pytest.raises(InputInvalid, match="not a number in each row"):
        infer(table, target="gap")
    visits = table.assign(visits=[0, 137] * 10)
    said = {"role": "target", "min": 0, "max": 140, "counts": True, "outside": "clip"}
    found = infer(visits, counts="visits")
    assert found["columns"]["visits"] == said
    assert parse_schema(found).target == TargetColumn(low=0, high=140, outside="clip", counts=True)
    stated = {"visits": {"min": 0.0, "max": 40.0, "outside": "clip"}}
    assert infer(visits, counts="visits", stated=stated)["columns"]["visits"] == said | {"max": 40.0}
    for wrong in ("gap", "rent", "topics"):
        with pytest.raises(InputInvalid, match="not whole numbers"):
            infer(table, counts=wrong)
    with pytest.raises(InputInvalid, match="no names"):
        infer(table.assign(topics=None), label="topics")
    for given in ({}, {"label": "x", "target": "rent"}):
        with pytest.raises(InputInvalid, match="learns one column"):
            infer(table, **given)


def test_stated_columns_are_not_read() -> None:
    """If the caller states all columns, the schema does not depend on the rows. If a column is not stated, the error
    names it."""
    stated = {"x": {"kind": "numeric", "min": 0, "max": 9, "outside": "clip"}, "y": {"values": ["no", "yes"]}}
    given: dict[str, Any] = {"label": "y", "subject": "who", "stated": stated, "public": False}
    table = pd.DataFrame({"x": [1, 2000], "y": ["no", "7319"], "who": ["p1", "p2"]})
    schema = infer(table, **given)
    assert schema == infer(table.iloc[:0], **given)
    assert schema["columns"] == stated | {
        "y": {"role": "label", "values": ["no", "yes"]},
        "who": {"role": "subject"},
    }
    with pytest.raises(InputInvalid, match="state each column: z"):
        infer(table.assign(z=1), **given)
    with pytest.raises(InputInvalid, match="no column for the stated"):
        infer(table, label="y", stated={"w": {"role": "ignored"}})


@pytest.mark.slow
def test_a_preview_reports_accuracy_and_cost() -> None:
    """A table's preview reports the shares of clipped and unknown values, warnings, Lethe's accuracy next to
    scikit-learn's, and the cost of forgetting. A larger epsilon gives a higher accuracy, and a larger l2 needs fewer
    passes."""
    table = load_wine(as_frame=True).frame
    found = preview(table, schema=infer(table, label="target"), epsilons=(0.5, 4.0))
    assert (found.num_rows, found.num_features, found.held_out) == (178, 13, 44)
    assert found.scikit_learn is not None
    assert found.scikit_learn > 0.9
    assert found.warnings == ()
    assert all(0 <= one.clipped < 0.05 and one.unknown == 0 for one in found.columns)
    by = {(plan.epsilon, round(plan.l2 * 134, 2)): plan for plan in found.plans}
    assert by.keys() == {(0.5, share) for share in (1.0, 4.0, 16.0)} | {(4.0, share) for share in (0.25, 1.0, 4.0)}
    assert by[4.0, 1.0].accuracy > by[0.5, 1.0].accuracy
    assert all(plan.accuracy_without_noise > 0.85 for plan in found.plans)
    assert found.second_moment is not None
    assert 1 / 14 <= found.second_moment < 0.5
    bound = {"epsilons": (4.0,), "l2": (0.01,), "second_moment": 0.5}
    [bounded] = preview(table, schema=infer(table, label="target"), **bound).plans
    [other] = preview(table, schema=infer(table, label="target"), **bound | {"second_moment": None}).plans
    assert bounded.learn_passes < 0.6 * other.learn_passes
    assert (by[0.5, 16.0].request_passes or 0) < (by[0.5, 1.0].request_passes or 0)
    assert json.loads(json.dumps(found.to_json()))["num_rows"] == 178


@pytest.mark.slow
def test_a_preview_measures_a_target() -> None:
    """For a numeric target, the preview reports r squared next to that of scikit-learn's regressions. Noise reduces it
    more for least squares than for Huber regression."""
    table = load_diabetes(as_frame=True, scaled=False).frame
    given: dict[str, Any] = {"schema": infer(table, target="target"), "epsilons": (8.0,), "l2": (0.02,)}
    found = preview(table, **given)
    assert (found.objective, found.metric, found.majority) == ("huber_regression", "r_squared", 0.0)
    assert found.scikit_learn_model in ("ridge regression", "Huber regression")
    assert 0.4 < (found.scikit_learn or 0) < 0.6
    [plan] = found.plans
    assert plan.accuracy_without_noise == pytest.approx(found.scikit_learn, abs=0.05)
    assert plan.accuracy == pytest.approx(found.scikit_learn, abs=0.05)
    [squares] = preview(table, objective="least_squares", **given).plans
    assert squares.accuracy_without_noise == pytest.approx(found.scikit_learn, abs=0.05)
    assert squares.accuracy < plan.accuracy
    low, middle, high = found.lengths
    assert 1 < low < middle < high
    assert sum(number**2 for _, _, number in found.row) == pytest.approx(1, abs=1e-5)
    assert [name for name, _, _ in found.row] == [*sorted(set(table.columns) - {"target"}), "bias"]


@pytest.mark.slow
def test_a_preview_measures_counts() -> None:
    """For counts, the preview models rates and reports r squared next to that of scikit-learn's Poisson regression.
    Huber regression fits counts worse."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {name: random.uniform(-1, 1, 1500) for name in "ab"}
    columns["y"] = np.minimum(random.poisson(np.exp(1 + 2 * columns["a"] - columns["b"])), 40)
    number = {"kind": "standard", "center": 0, "scale": 0.5}
    of_counts = {"role": "target", "min": 0, "max": 40, "counts": True}
    given: dict[str, Any] = {"schema": {"columns": {"a": number, "b": number, "y": of_counts}}, "epsilons": (8.0,)}
    found = preview(pd.DataFrame(columns), l2=(0.001,), **given)
    assert (found.objective, found.metric, found.scikit_learn_model) == (
        "poisson_regression",
        "r_squared",
        "Poisson regression",
    )
    [plan] = found.plans
    assert plan.accuracy_without_noise == pytest.approx(found.scikit_learn, abs=0.15)
    assert plan.accuracy == pytest.approx(plan.accuracy_without_noise, abs=0.1)
    [line] = preview(pd.DataFrame(columns), objective="huber_regression", l2=(0.001,), **given).plans
    assert line.accuracy_without_noise < plan.accuracy_without_noise - 0.1
    given["schema"]["columns"]["y"] = of_counts | {"counts": False}
    with pytest.raises(PreconditionFailed) as refused:
        preview(pd.DataFrame(columns), objective="poisson_regression", **given)
    assert refused.value.errors[0].path == "objective"


@pytest.mark.slow
def test_a_preview_measures_several_labels() -> None:
    """Multiple labels are measured together and compared with a separate logistic regression for each label."""
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 4))
    has = x @ random.normal(size=(4, 3)) + 0.3 * random.normal(size=(400, 3)) > 0.5
    topics = [";".join(name for name, there in zip("abc", row, strict=True) if there) for row in has]
    table = pd.DataFrame(x, columns=["x0", "x1", "x2", "x3"]).assign(topics=topics)
    found = preview(table, schema=infer(table, labels="topics"), epsilons=(8.0,), l2=(0.01,))
    assert (found.objective, found.metric) == ("multilabel_logistic_regression", "label_accuracy")
    assert found.scikit_learn_model == "a logistic regression for each label"
    assert 0.5 < found.majority < 0.7 < 0.85 < (found.scikit_learn or 0)
    [plan] = found.plans
    assert plan.accuracy == pytest.approx(found.scikit_learn, abs=0.03)


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("width", [0.5, math.inf])
def test_slopes_of_preview_losses_match_difference_quotients(objective: Objective, width: float) -> None:
    """The derivative of each loss equals its difference quotient on every piece of the loss."""
    random = np.random.default_rng(1)
    scores = random.normal(size=(40, 3 if objective is Objective.MULTILABEL_LOGISTIC_REGRESSION else 1))
    labels = random.integers(0, 8 if scores.shape[1] > 1 else 2, 40).astype(np.int32)
    learned = Learned.of(objective, labels * (2**21 if objective.is_regression else 1), scores.shape[1])
    if math.isinf(width) and objective is Objective.SMOOTHED_HINGE:
        return
    step = 1e-6 * random.normal(size=scores.shape)
    change = learned.loss(scores + step, width) - learned.loss(scores - step, width)
    expected = 2 * float((learned.pull(scores, width) * step).sum() / len(scores))
    assert change == pytest.approx(expected, rel=1e-3, abs=1e-12)


def test_a_preview_warns_about_unscaled_columns() -> None:
    """If a schema's ranges make rows nearly parallel, the preview warns before any upload and names the dominating
    column."""
    table = load_breast_cancer(as_frame=True).frame
    columns: dict[str, Any] = {name: {"kind": "numeric", "min": 0, "max": 1e5} for name in table.columns}
    columns["target"] = {"role": "label", "values": ["0", "1"]}
    found = preview(table, schema={"columns": columns}, epsilons=(1.0,), l2=(0.01,))
    assert any("nearly parallel" in warning for warning in found.warnings)


def test_a_preview_refuses_what_the_gateway_would() -> None:
    """A preview refuses an invalid schema, a row out of range and a mostly unknown column with the same errors as the
    gateway."""
    table = pd.DataFrame({"x": [1.0, 2.0, 300.0, 4.0], "y": ["a", "b", "a", "b"]})
    label = {"role": "label", "values": ["a", "b"]}
    numeric = {"kind": "numeric", "min": 0, "max": 1000}
    with pytest.raises(SchemaInvalid, match="column z: is missing"):
        preview(table, schema={"columns": {"x": numeric, "y": label, "z": {"role": "subject"}}})
    with pytest.raises(PreconditionFailed, match="does not learn what the schema has"):
        preview(table, schema={"columns": {"x": numeric, "y": label}}, objective="least_squares")
    with pytest.raises(DatasetUnusable, match="no rows"):
        preview(table.iloc[:0], schema={"columns": {"x": numeric, "y": label}})
    for column, error in (
        ({"kind": "numbers"}, SchemaInvalid),
        ({"kind": "numeric", "min": 0, "max": 10}, RowInvalid),
        ({"kind": "categorical", "values": ["7"], "unknown": "null"}, DatasetUnusable),
    ):
        with pytest.raises(error):
            preview(table, schema={"columns": {"x": column, "y": label}})


@pytest.mark.slow
def test_a_dry_run_trains_with_weights() -> None:
    """A weight column needs a declared bound, and a bound needs a weight column. A dry run uses the weights for
    training but not for measuring."""
    random = np.random.default_rng(0)
    x = random.normal(size=600)
    y = np.where(random.random(600) < 1 / (1 + np.exp(-x)), "yes", "no")
    table = pd.DataFrame({"x": x, "y": y, "w": np.where(y == "yes", 0.0, 5.0)})
    schema = infer(table, label="y", weight="w", weight_bound=10)
    assert schema["columns"]["w"] == {"role": "weight", "max": 10}
    with pytest.raises(InputInvalid, match="has a bound"):
        infer(table, label="y", weight="w")
    with pytest.raises(InputInvalid, match="no column for the weight"):
        infer(table, label="y", weight="v", weight_bound=10)
    with pytest.raises(SchemaInvalid, match="above 0"):
        parse_schema(infer(table, label="y", weight="w", weight_bound=0))
    weighted = preview(table, schema=schema, epsilons=[4.0], l2=[0.01])
    full = preview(table.assign(w=10.0), schema=schema, epsilons=[4.0], l2=[0.01])
    schema["columns"]["w"] = {"role": "ignored"}
    plain = preview(table, schema=schema, epsilons=[4.0], l2=[0.01])
    assert full.to_json() == plain.to_json()
    assert plain.plans[0].accuracy_without_noise > 0.6
    assert weighted.plans[0].accuracy_without_noise == pytest.approx(np.mean(y == "no"), abs=0.08)
