"""Rows of records as a network takes and gives them: what of them is refused, by their place and by nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.contract.problems import FieldError, SchemaInvalid
from lethe.encoding.faults import Faults
from lethe.encoding.rows import Schema

NOT_FINITE = "expected features that are finite numbers, once the network has computed them"


def numbers_of(input_size: int) -> str:
    """The numbers that a network takes of a row, in words."""
    return f"expected {input_size} numbers of a row, which the network takes"


def check_fit(schema: Schema, input_size: int) -> None:
    """Raises `SchemaInvalid` where a schema makes other numbers of a record than the network takes."""
    if schema.random is not None or schema.num_features != input_size:
        raise SchemaInvalid("The schema does not fit the network.", [FieldError("schema", numbers_of(input_size))])


def check_finite(numbers: NDArray[np.floating[Any]], lines: Sequence[int], message: str = NOT_FINITE) -> None:
    """Raises `RowInvalid` for rows, at these lines of a file, of which a network makes a number that is not finite."""
    faults = Faults.in_file(lines)
    faults.mark("", ~np.isfinite(numbers).all(axis=1), message)
    faults.refuse()
