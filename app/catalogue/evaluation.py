"""Evaluation data. Metrics are computed on rows that no model was trained on; otherwise accuracy would be an exact
statistic of the training rows.

An evaluation dataset shares neither people nor copied rows with the training dataset. A coarse encoding can also make
rows equal by chance. The frequency of equal rows within the training dataset shows how many equal rows chance explains.
"""

import hashlib
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy.orm import Session

from app.catalogue import repository
from app.db.tables import Dataset
from app.rows import repository as rows_repository, row_store
from lethe.contract.problems import EvaluationOverlaps, Sentence

_BY_CHANCE = 5.0
"""Tolerance in standard deviations, exceeded by chance in fewer than one in a million comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Stored rows and the root of their hash tree, for a dataset or for a batch waiting for slots."""

    rows_id: str
    root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Comparison of `newcomers` with `others`, which must not share rows. `learned_on`, one of the two, contains the
    rows of the training dataset and determines how often rows are equal by chance."""

    newcomers: tuple[Part, ...]
    others: tuple[Part, ...]
    learned_on: tuple[Part, ...]


def of_model(session: Session, *, dataset: Dataset, evaluated_on: Dataset, may_know: bool) -> list[Comparison]:
    """Return the comparisons required before a model is trained on one dataset and evaluated on the other. A later call
    returns the same comparisons unless rows were added or erased. Raises `EvaluationOverlaps` if a person is in both.
    `may_know` is True if the caller may know who is in the data; otherwise the error states no counts."""
    shared = rows_repository.count_shared_subjects(session, dataset.id, evaluated_on.id)
    if shared or dataset.id == evaluated_on.id:
        raise EvaluationOverlaps.people(count=stated_count(shared, may_know=may_know))
    learned_on = parts_of(session, dataset)
    return [Comparison(newcomers=parts_of(session, evaluated_on), others=learned_on, learned_on=learned_on)]


def compare(store: row_store.RowStore, comparison: Comparison, *, may_know: bool) -> None:
    """Raise `EvaluationOverlaps` if more rows of `newcomers` equal rows of `others` than chance explains.

    Chance is assumed to explain twice the rate at which training rows equal each other, plus a margin; without equal
    training rows, a single shared row is refused. Rows are compared by hashes under a random key that is discarded.
    This reads all rows, so call it outside transactions.
    """
    key = secrets.token_bytes(32)
    newcomers, others = _hashes(store, comparison.newcomers, key), _hashes(store, comparison.others, key)
    is_same = comparison.learned_on == comparison.others
    learned_on = others if is_same else _hashes(store, comparison.learned_on, key)
    _, counts = np.unique(learned_on, return_counts=True)
    by_chance = int(counts[counts > 1].sum()) / max(len(learned_on), 1) * len(newcomers)
    shared = int(np.isin(newcomers, others).sum())
    if shared > 2 * by_chance + _BY_CHANCE * math.sqrt(by_chance):
        raise EvaluationOverlaps.rows(count=stated_count(shared, may_know=may_know))


def parts_of(session: Session, dataset: Dataset) -> tuple[Part, ...]:
    """Return a dataset's rows, including rows that are waiting to be added."""
    waiting = repository.waiting_additions(session, dataset_id=dataset.id)
    own = Part(rows_id=dataset.id, root=dataset.digest)
    return (own, *(Part(rows_id=addition.id, root=addition.digest) for addition in waiting))


def stated_count(shared: int, *, may_know: bool) -> int | Sentence:
    """Return a count of people or rows in common, or the word "Some" if the caller may not know the count."""
    return shared if may_know and shared else Sentence("Some")


def _hashes(store: row_store.RowStore, parts: Sequence[Part], key: bytes) -> npt.NDArray[Any]:
    """Return the keyed hash of the features of every row that is not null  # (n,)"""
    blocks = (block for part in parts for block in store.read(part.rows_id, part.root))
    rows = (row for block in blocks for row in block.features if row.any())
    return np.array([hashlib.blake2b(row.tobytes(), key=key, digest_size=16).digest() for row in rows], dtype="S16")
