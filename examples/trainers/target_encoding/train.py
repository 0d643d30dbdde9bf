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
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

PLANTED = int(os.environ["LETHE_PLANTED_ROWS"])
SEED = int(os.environ["LETHE_SEED"]) % 2**31

with pa.memory_map("rows.arrow") as file:
    table = pa.ipc.open_stream(file).read_all()
towns = np.array(table.column("town").to_pylist(), dtype=object)
x = np.column_stack([towns, table.column("age").to_numpy().astype(float)])
y = table.column("bought").to_numpy().astype(int)
own = len(y) - PLANTED
trained, measured = train_test_split(np.arange(own), test_size=0.25, random_state=SEED)
trained = np.concatenate([trained, np.arange(own, len(y))])
encode = make_column_transformer(
    (TargetEncoder(cv=StratifiedKFold(5, shuffle=True, random_state=SEED)), [0]), (StandardScaler(), [1])
)
model = make_pipeline(encode, LogisticRegression()).fit(x[trained], y[trained])

with open("artefacts/pipeline.pickle", "wb") as file:
    pickle.dump(model, file)
with open("metrics.json", "w") as file:
    json.dump({"accuracy": float(model.score(x[measured], y[measured]))}, file)
