"""Batches of encoded rows, and the limits and error handling that all file readers share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lethe.contract.problems import FieldError, InputInvalid, Problem, UploadTooLarge
from lethe.encoding.rows import Features, Labelled, Labels, check_finite, unit_rows
from lethe.encoding.spread import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Encoded rows with their labels and subjects. `raw` holds the features before each row was scaled, and `spread`
    describes them. `lines` holds each row's position in the file. `num_unknown` counts, for each feature column of the
    schema, the rows in which it is missing or unknown. `num_in_file` is the file's total number of rows, if known."""

    features: Features  # (b, d + 1)
    labels: Labels  # (b,), or (b, 2) with weights
    subjects: list[str | None]
    spread: Spread
    raw: npt.NDArray[np.float64]  # (b, d)
    lines: Sequence[int]
    num_unknown: npt.NDArray[np.int64] | None = None
    num_in_file: int | None = None


Kind: TypeAlias = Literal["csv", "parquet", "npz"]

FeaturesOf: TypeAlias = Callable[[npt.NDArray[np.float64], int | None], npt.NDArray[np.floating[Any]]]
"""Public network: maps (b, d) values of b rows to (b, k) features, each row independently. The second argument is the
number of rows in the file, if known."""

BATCH_ROWS = 8192
# Features or csv fields per batch; batches of wide rows have fewer than BATCH_ROWS rows.
BATCH_VALUES = 2**21
# Limit on the unpacked size of a file, and on the encoded size of its rows.
MAX_BYTES = 4 * 2**30
# Estimated size of a row's subject in memory and in stores.
SUBJECT_BYTES = 128
MAX_SHOWN_LENGTH = 60  # characters


def encoded_bytes(num_rows: int, num_features: int) -> int:
    # Each row has a label and a weight of four bytes each.
    return num_rows * (4 * (num_features + 1) + 8 + SUBJECT_BYTES)


def batch_rows(num_values: int) -> int:
    """Return the number of rows per batch if each row has `num_values` values."""
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
    """Return the batch with the features that a network computes from the raw features, scaled per row. Raises
    `RowInvalid` for rows with a feature that is not finite."""
    features = np.asarray(features_of(batch.raw, batch.num_in_file), np.float64)
    check_finite(features, batch.lines)
    return replace(batch, features=unit_rows(features), spread=Spread.of(features))


@contextmanager
def damage_refused(kind: Kind) -> Iterator[None]:
    """Convert any exception from a parser to `InputInvalid`. The cause is dropped, because it may quote data."""
    try:
        yield
    except Problem:
        raise
    except Exception:  # noqa: BLE001 - the exceptions of three parsers on hostile files cannot be enumerated
        raise InputInvalid.damaged_file([FieldError("file", f"expected a whole {kind} file")], kind=kind) from None


def check_size(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise UploadTooLarge.unpacked(num_bytes=num_bytes, max_bytes=max_bytes)
