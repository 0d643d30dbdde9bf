"""Evaluation data: measured on rows that nobody learned from, or accuracy would be an exact statistic of who learned.

Nobody of the evaluation dataset may be in the dataset that is learned from, and no row, under whatever name. Rows that
a coarse encoding makes equal by chance are told from rows that were handed over by how often rows of the dataset equal
each other.
"""

import hashlib
import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy.orm import Session

from app.catalogue import repository
from app.db.tables import Dataset
from app.rows import repository as rows_repository
from app.rows.row_store import RowStore
from lethe.contract.problems import EvaluationOverlaps

_BY_CHANCE = 5.0
"""Standard deviations; of what is counted less than one in a million comparisons goes beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows in the row store, as they were when they were named: of a dataset, or of a batch that waits for slots."""

    rows_id: str
    root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`newcomers`: rows that must be none of the rows of `others`. `learned_on`: those of the dataset that is learned
    from, one of the two, by which it is judged how often rows are equal by chance."""

    newcomers: tuple[Part, ...]
    others: tuple[Part, ...]
    learned_on: tuple[Part, ...]


def of_model(session: Session, *, dataset: Dataset, evaluated_on: Dataset, may_know: bool) -> list[Comparison]:
    """The comparisons that must be made before a model learns from one dataset and is measured on the other. Another
    answer later says that rows came or went.

    Raises `EvaluationOverlaps` where somebody is in both. `may_know`: the caller may learn who is in the data.
    """
    shared = rows_repository.count_shared_subjects(session, dataset.id, evaluated_on.id)
    if shared or dataset.id == evaluated_on.id:
        raise _overlaps(shared, "people are", may_know=may_know)
    learned_on = _parts(session, dataset)
    return [Comparison(newcomers=_parts(session, evaluated_on), others=learned_on, learned_on=learned_on)]


def of_addition(
    session: Session, *, dataset: Dataset, rows: Part, subject_refs: Iterable[str | None], may_know: bool
) -> list[Comparison]:
    """The comparisons that must be made before rows come to a dataset: with each dataset that its models are measured
    on, and each that is learned from by models that are measured on it. Raises as `of_model`."""
    newcomers = {ref for ref in subject_refs if ref is not None}
    found = []
    for other in repository.datasets_apart_from(session, dataset_id=dataset.id):
        shared = rows_repository.count_subjects_among(session, newcomers, dataset_id=other.id)
        if shared:
            raise _overlaps(shared, "people are", may_know=may_know)
        is_learned_on = repository.is_measured_on(session, dataset_id=dataset.id, evaluated_on=other.id)
        learned_on = _parts(session, dataset if is_learned_on else other)
        found.append(Comparison(newcomers=(rows,), others=_parts(session, other), learned_on=learned_on))
    return found


def compare(store: RowStore, comparison: Comparison, *, may_know: bool) -> None:
    """Refuse newcomers that are rows of the others too, more of them than by chance: as often as any row that is
    learned from equals another of them, twice over. Where no two rows are equal, one is too many.

    Raises `EvaluationOverlaps`. Rows are compared by hashes under a key that nobody has and that is gone afterwards. It
    takes as long as reading the rows takes: for no transaction.
    """
    key = secrets.token_bytes(32)
    newcomers, others = _hashes(store, comparison.newcomers, key), _hashes(store, comparison.others, key)
    is_same = comparison.learned_on == comparison.others
    learned_on = others if is_same else _hashes(store, comparison.learned_on, key)
    _, counts = np.unique(learned_on, return_counts=True)
    by_chance = int(counts[counts > 1].sum()) / max(len(learned_on), 1) * len(newcomers)
    shared = int(np.isin(newcomers, others).sum())
    if shared > 2 * by_chance + _BY_CHANCE * math.sqrt(by_chance):
        raise _overlaps(shared, "rows are", may_know=may_know)


def _parts(session: Session, dataset: Dataset) -> tuple[Part, ...]:
    """All rows that a dataset has, or is going to have."""
    waiting = repository.waiting_additions(session, dataset_id=dataset.id)
    own = Part(rows_id=dataset.id, root=dataset.digest)
    return (own, *(Part(rows_id=one.id, root=one.digest) for one in waiting))


def _overlaps(shared: int, what: str, *, may_know: bool) -> EvaluationOverlaps:
    count = f"{shared} {what}" if may_know and shared else f"Some {what}"
    return EvaluationOverlaps(
        f"{count} both in a dataset that is learned from and in one that its models are measured on. Leave them out of "
        "one of the two."
    )


def _hashes(store: RowStore, parts: Sequence[Part], key: bytes) -> npt.NDArray[Any]:
    """Hash the features of every row that is not null  # (n,)"""
    blocks = (block for part in parts for block in store.read(part.rows_id, part.root))
    rows = (row for block in blocks for row in block.features if row.any())
    return np.array([hashlib.blake2b(row.tobytes(), key=key, digest_size=16).digest() for row in rows], dtype="S16")
