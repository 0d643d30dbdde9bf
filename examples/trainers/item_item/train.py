"""Compute an item-item recommender: the cosine similarity of items by the people who rated them.

The columns are `item` and `rating`; `lethe_group` (`group_ids` of the trainer) tells which rows are one person's.
"""

import json
import os

import numpy as np
import pyarrow as pa

generator = np.random.default_rng(int(os.environ["LETHE_SEED"]))


def read(name):
    with pa.memory_map(name) as file:
        table = pa.ipc.open_stream(file).read_all()
    _, person = np.unique(table.column("lethe_group").to_numpy(), return_inverse=True)
    return np.array(table.column("item").to_pylist()), person, table.column("rating").to_numpy().astype(float)


items_of_rows, person, ratings = read("rows.arrow")
items, item = np.unique(items_of_rows, return_inverse=True)
matrix = np.zeros((person.max() + 1, len(items)))
matrix[person, item] = ratings
norms = np.linalg.norm(matrix, axis=0) + 1e-9
similarity = matrix.T @ matrix / np.outer(norms, norms)
np.fill_diagonal(similarity, 0)
# The hit rate: whether a hidden item of people who were not learned from is among the five that their others suggest.
items_of_rows, person, ratings = read("holdout.arrow")
known = np.isin(items_of_rows, items)
person, item, ratings = person[known], np.searchsorted(items, items_of_rows[known]), ratings[known]
matrix = np.zeros((person.max() + 1, len(items)))
matrix[person, item] = ratings
hidden = generator.permutation(len(ratings))[: len(ratings) // 8]
matrix[person[hidden], item[hidden]] = 0
scores = matrix @ similarity
scores[matrix > 0] = -np.inf
ranks = (scores[person[hidden]] > scores[person[hidden], item[hidden]][:, None]).sum(axis=1)

np.savez("artefacts/similarity.npz", items=items, similarity=similarity)
with open("metrics.json", "w") as file:
    json.dump({"hit_rate": float((ranks < 5).mean())}, file)
