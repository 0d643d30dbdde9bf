"""Rows of slightly more than two blocks, written, opened and found on the disk."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from app.rows.blocks import BLOCK_ROWS, Features, Labels
from app.rows.row_store import RowStore

NUM_SLOTS = 2 * BLOCK_ROWS + 7
TOUCHED = [1, BLOCK_ROWS - 1, NUM_SLOTS - 1]
ROOM = 2**20


def batch_of(num_rows: int = NUM_SLOTS, seed: int = 0) -> tuple[Features, Labels]:
    random = np.random.default_rng(seed)
    features = random.uniform(0.1, 0.5, (num_rows, 3)).astype(np.float32)
    labels = random.integers(1, 3, num_rows).astype(np.int32)
    return features, labels


def rows_of(store: RowStore, root: str, rows_id: str = "ds_1") -> tuple[np.ndarray, np.ndarray]:
    with store.open(rows_id, root) as rows:
        rows.show([range(rows.shape.num_blocks)])
        return rows.features.copy(), rows.labels.copy()


def files(tmp_path: Path) -> Iterator[Path]:
    return (path for path in tmp_path.rglob("*") if path.is_file() and path.name != "kek")
