"""Write the log loss of each row under the trees."""

import json
import sys

import numpy as np
import pyarrow as pa

# XGBoost imports scikit-learn wherever it finds it, which takes seconds. The lock file does not name it.
sys.modules["sklearn"] = None
import xgboost  # noqa: E402

with pa.memory_map("rows.arrow") as file:
    table = pa.ipc.open_stream(file).read_all()
with open("artefacts/categories.json") as file:
    categories = json.load(file)
names = [name for name in table.column_names if name != "income"]
columns = []
for name in names:
    values = table.column(name).to_pylist()
    if name in categories:
        places = {value: place for place, value in enumerate(categories[name])}
        values = [places.get(value) for value in values]
    columns.append(np.array(values, dtype=float))
model = xgboost.Booster(model_file="artefacts/model.json")
types = ["c" if name in categories else "q" for name in names]
data = xgboost.DMatrix(np.stack(columns, axis=1), feature_types=types, enable_categorical=True)
chances = np.clip(model.predict(data).astype(np.float64), 1e-7, 1 - 1e-7)
y = np.array([label == ">50K" for label in table.column("income").to_pylist()])
np.save("losses.npy", -np.log(np.where(y, chances, 1 - chances)))
