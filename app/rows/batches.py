"""Batches of encoded rows, and limits that every kind of file is read within."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lethe.contract.problems import FieldError, InputInvalid, Problem, UploadTooLarge
from lethe.encoders.rows import check_finite
from lethe.encoding.rows import Features, Labelled, Labels, unit_rows
from lethe.encoding.spread import Spread

Kind: TypeAlias = Literal["csv", "parquet", "npz"]

FeaturesOf: TypeAlias = Callable[[npt.NDArray[np.float64], int | None], npt.NDArray[np.floating[Any]]]
"""A public network: (b, d) numbers of b rows in, (b, k) features of them out, each row's of that row alone. It is told
how many rows the file has, where that is known."""

BATCH_ROWS = 8192
BATCH_VALUES = 2**21  # features, or fields of a csv file; fewer rows make a batch when they are wide
MAX_BYTES = 4 * 2**30  # that a file unpacks to; and that its rows take, encoded
SUBJECT_BYTES = 128  # what whose a row is takes, wherever that is
LONGEST_SHOWN = 60  # characters of a column's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Encoded rows, their labels and whose they are. `num_unknown`: in how many of them each feature column of the
    schema is missing or unknown; `num_in_file`: rows of the whole file, where that is known; `spread`: of their
    features before each was scaled, which are `raw`; `lines`: where they stand in the file."""

    features: Features  # (b, d + 1)
    labels: Labels  # (b,), or (b, 2) with weights
    subjects: list[str | None]
    spread: Spread
    raw: npt.NDArray[np.float64]  # (b, d)
    lines: Sequence[int]
    num_unknown: npt.NDArray[np.int64] | None = None
    num_in_file: int | None = None


def encoded_bytes(num_rows: int, num_features: int) -> int:
    return num_rows * (4 * (num_features + 1) + 8 + SUBJECT_BYTES)  # a label and a weight


def batch_rows(num_values: int) -> int:
    """The rows of a batch when each has so many values."""
    return max(1, min(BATCH_ROWS, BATCH_VALUES // num_values))


def of_schema(rows: Labelled, lines: Sequence[int], *, num_in_file: int | None) -> Batch:
    return Batch(
        features=rows.features,
        labels=rows.labels,
        subjects=rows.subjects,
        spread=Spread.of(rows.raw),
        raw=rows.raw,
        lines=lines,
        num_unknown=rows.num_unknown,
        num_in_file=num_in_file,
    )


def through(batch: Batch, features_of: FeaturesOf) -> Batch:
    """The batch with features that a network makes of its raw ones, each row scaled as any other. Raises `RowInvalid`
    for rows of which it makes a number that is not finite."""
    features = np.asarray(features_of(batch.raw, batch.num_in_file), np.float64)
    check_finite(features, batch.lines)
    return replace(batch, features=unit_rows(features), spread=Spread.of(features))


@contextmanager
def damage_refused(kind: Kind) -> Iterator[None]:
    """Around a parser alone: whatever it raises, the file cannot be read. The cause is dropped: it may quote data."""
    try:
        yield
    except Problem:
        raise
    except Exception:  # noqa: BLE001 - nobody lists what three parsers raise on every hostile file
        raise InputInvalid(
            f"The file is damaged or is not a {kind} file.", [FieldError("file", f"expected a whole {kind} file")]
        ) from None


def check_size(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise UploadTooLarge(f"The file unpacks to {num_bytes} bytes; at most {max_bytes} are accepted.")
