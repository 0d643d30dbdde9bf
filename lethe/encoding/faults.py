"""Faults of rows, by place, in text that never repeats a value."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from lethe.contract.problems import FieldError, InputInvalid, RowInvalid

MAX_FAULTS = 20


class Faults:
    """The faults of a batch, by place; `refuse` raises the first twenty, in the order of the rows."""

    def __init__(self, error: type[InputInvalid], place: Callable[[int, str], str]) -> None:
        self._error = error
        self._place = place
        self._found: list[tuple[int, FieldError]] = []

    @classmethod
    def in_file(cls, lines: Sequence[int]) -> "Faults":
        return cls(RowInvalid, lambda row, column: f"line {lines[row]}" + (f", column {column}" if column else ""))

    @classmethod
    def in_records(cls) -> "Faults":
        return cls(InputInvalid, lambda row, column: f"records.{row}" + (f".{column}" if column else ""))

    def mark(self, column: str, wrong: npt.ArrayLike, message: str) -> None:
        for row in np.flatnonzero(wrong)[:MAX_FAULTS].tolist():
            self._found.append((row, FieldError(self._place(row, column), message)))

    def refuse(self) -> None:
        if self._found:
            refuse(self._error, [fault for _, fault in sorted(self._found, key=lambda found: found[0])])


def refuse(error: type[InputInvalid], faults: Sequence[FieldError]) -> None:
    """Raise `error` with the first twenty faults, the first of them as its detail; do nothing when there are none."""
    if faults:
        raise error(f"{faults[0].path}: {faults[0].message}.", faults[:MAX_FAULTS])
