"""Train a scikit-learn pipeline that encodes categories by the mean of the label: the label is `bought`.

A target encoding holds sums over people, which is why it is trained again with everything else.
"""

import json
import os
import pickle

import numpy as np
import pyarrow as pa
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

SEED = int(os.environ["LETHE_SEED"]) % 2**31


def read(name):
    with pa.memory_map(name) as file:
        table = pa.ipc.open_stream(file).read_all()
    towns = np.array(table.column("town").to_pylist(), dtype=object)
    x = np.column_stack([towns, table.column("age").to_numpy().astype(float)])
    return x, table.column("bought").to_numpy().astype(int)


encode = make_column_transformer(
    (TargetEncoder(cv=StratifiedKFold(5, shuffle=True, random_state=SEED)), [0]), (StandardScaler(), [1])
)
model = make_pipeline(encode, LogisticRegression()).fit(*read("rows.arrow"))

with open("artefacts/pipeline.pickle", "wb") as file:
    pickle.dump(model, file)
with open("metrics.json", "w") as file:
    json.dump({"accuracy": float(model.score(*read("holdout.arrow")))}, file)
