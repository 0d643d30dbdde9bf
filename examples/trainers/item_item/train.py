"""Compute an item-item recommender: the cosine similarity of items by the people who rated them.

The columns are `item` and `rating`; `lethe_group` (`group_ids` of the trainer) tells which rows are one person's.
"""

import json
import os

import numpy as np
import pyarrow as pa

PLANTED = int(os.environ["LETHE_PLANTED_ROWS"])
generator = np.random.default_rng(int(os.environ["LETHE_SEED"]))

with pa.memory_map("rows.arrow") as file:
    table = pa.ipc.open_stream(file).read_all()
items, item = np.unique(table.column("item").to_pylist(), return_inverse=True)
_, person = np.unique(table.column("lethe_group").to_numpy(), return_inverse=True)
ratings = table.column("rating").to_numpy().astype(float)
own = len(ratings) - PLANTED
hidden = generator.permutation(own)[: own // 10]
matrix = np.zeros((person.max() + 1, len(items)))
matrix[person, item] = ratings
matrix[person[hidden], item[hidden]] = 0
norms = np.linalg.norm(matrix, axis=0) + 1e-9
similarity = matrix.T @ matrix / np.outer(norms, norms)
np.fill_diagonal(similarity, 0)
# The hit rate: whether a hidden item is among the five that the person's other items suggest.
scores = matrix @ similarity
scores[matrix > 0] = -np.inf
ranks = (scores[person[hidden]] > scores[person[hidden], item[hidden]][:, None]).sum(axis=1)

np.savez("artefacts/similarity.npz", items=items, similarity=similarity)
with open("metrics.json", "w") as file:
    json.dump({"hit_rate": float((ranks < 5).mean())}, file)
