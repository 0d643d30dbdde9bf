"""Train boosted trees on the census data: the label is `income`, categories are read as such."""

import json
import os
import sys

import numpy as np
import pyarrow as pa

# XGBoost imports scikit-learn wherever it finds it, which takes seconds. The lock file does not name it.
sys.modules["sklearn"] = None
import xgboost  # noqa: E402

SEED = int(os.environ["LETHE_SEED"]) % 2**31

tables = []
for name in ("rows.arrow", "holdout.arrow"):
    with pa.memory_map(name) as file:
        tables.append(pa.ipc.open_stream(file).read_all())
number, table = tables[0].num_rows, pa.concat_tables(tables)
categories = {}
columns = []
for name in table.column_names:
    if name == "income":
        continue
    values = table.column(name).to_pylist()
    if table.schema.field(name).type == pa.string():
        categories[name] = sorted({value for value in values[:number] if value is not None})
        places = {value: place for place, value in enumerate(categories[name])}
        values = [places.get(value) for value in values]
    columns.append(np.array(values, dtype=float))
x = np.stack(columns, axis=1)
y = np.array([label == ">50K" for label in table.column("income").to_pylist()])
types = ["c" if name in categories else "q" for name in table.column_names if name != "income"]
trained, measured = slice(number), slice(number, None)


def matrix(rows):
    return xgboost.DMatrix(x[rows], label=y[rows], feature_types=types, enable_categorical=True)


parameters = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "max_depth": 6,
    "eta": 0.1,
    "subsample": 0.9,
    "colsample_bytree": 0.6,
    "seed": SEED,
}
model = xgboost.train(parameters, matrix(trained), num_boost_round=250)
right = (model.predict(matrix(measured)) > 0.5) == y[measured]

model.save_model("artefacts/model.json")
with open("artefacts/categories.json", "w") as file:
    json.dump(categories, file)
with open("metrics.json", "w") as file:
    json.dump({"accuracy": float(right.mean())}, file)
