"""Tables of cases, each run as one test, because collecting thousands of quick tests takes a minute."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

ParameterSet: Any = type(pytest.param())
Test = Callable[..., None]


def at_length(rows: Collection[Any], *, besides: Collection[Any]) -> list[Any]:
    """Return a test's parameters: those in `besides` are used in every run, the others only in the soak."""
    assert all(row in rows for row in besides), "Expected these among the rows"
    return [row if row in besides else pytest.param(row, marks=pytest.mark.soak) for row in rows]


def each(names: str | tuple[str, ...], rows: Iterable[Any] | Callable[[], Iterable[Any]]) -> Callable[[Test], Test]:
    """Call a test with each row of a table, as `pytest.mark.parametrize` does, but in one test.

    The first row that fails is named. All rows share the values of the fixtures. A table that takes time to build is
    passed as a function, which is called when the test runs.
    """
    columns = (names,) if isinstance(names, str) else names

    def of_all(test: Test) -> Test:
        asked = inspect.signature(test)

        @functools.wraps(test)
        def all_rows(**fixtures: Any) -> None:
            table = list(rows if isinstance(rows, Iterable) else rows())
            assert table, "Expected rows"
            for row in table:
                row = row.values if isinstance(row, ParameterSet) else (row,) if isinstance(names, str) else row
                values = dict(zip(columns, row, strict=True))
                try:
                    test(**fixtures, **values)
                except BaseException as failure:
                    failure.add_note(f"In the row {values}")
                    raise

        fixtures = [parameter for name, parameter in asked.parameters.items() if name not in columns]
        all_rows.__signature__ = asked.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return all_rows

    return of_all
