"""Invented people: rows in which each column is drawn independently from the values in a table.

Each column, including the label, is drawn uniformly from its distinct values. Each value of a canary is ordinary, but
the combination is rare and the label arbitrary, so that a model can know the label only from the canary itself. Rare
values are drawn as often as frequent ones: canaries lie in sparse regions, where models memorise them.
"""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.proof.errors import DomainError, InfeasibleError, require_count

if TYPE_CHECKING:
    import pyarrow as pa

MIN_PLANTED = 20
MAX_PLANTED = 200
"""Maximum number of planted canaries; exact tests of larger groups exceed the range of float64."""
NUM_NEVER = 1000
"""Number of canaries that never enter a training run. They add no training rows and make the test a quarter sharper."""
_MAX_TRIES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """Canaries drawn together from one distribution: `planted` ones enter one training run, `never` ones enter none."""

    planted: "pa.Table"
    never: "pa.Table"


def generator() -> np.random.Generator:
    """Return a generator seeded by the operating system; the seed is not recorded."""
    return np.random.default_rng(secrets.randbits(128))


def draw(table: "pa.Table", *, number: int, rng: np.random.Generator, id_column: str | None = None) -> Canaries:
    """Return `number` canaries to plant and `NUM_NEVER` never to be planted, with the table's columns and types.

    The canaries depend on the table only through each column's set of values. Nulls and NaN are never drawn, unless a
    column has nothing else. `id_column` names people: canaries get unused integers from the range of existing ids,
    extended upwards when half of it is used, or unused texts of the same form (`ids_like`).

    Raises:
        DomainError: if `number` is not between `MIN_PLANTED` and `MAX_PLANTED`, or the table is empty.
        InfeasibleError: if too few unused ids of this form remain.
    """
    import pyarrow as pa

    if not MIN_PLANTED <= number <= MAX_PLANTED:
        raise DomainError(f"Expected number={number} in [{MIN_PLANTED}, {MAX_PLANTED}]")
    require_count(1, num_rows=table.num_rows)
    total = number + NUM_NEVER
    columns = []
    for field in table.schema:
        column = table.column(field.name)
        columns.append(_ids(column, total, rng) if field.name == id_column else _drawn(column, total, rng))
    people = pa.table(columns, schema=table.schema)
    return Canaries(planted=people.slice(0, number), never=people.slice(number))


def _drawn(column: "pa.ChunkedArray", total: int, rng: np.random.Generator) -> Any:
    import pyarrow as pa

    values = column.unique().drop_null()
    if pa.types.is_floating(values.type):
        values = values.filter(pa.array(~np.isnan(values.to_numpy(zero_copy_only=False))))
    if not len(values):
        return pa.nulls(total, column.type)
    drawn = values.take(pa.array(rng.integers(len(values), size=total)))
    return drawn.cast(column.type)


def _ids(column: "pa.ChunkedArray", total: int, rng: np.random.Generator) -> Any:
    import pyarrow as pa

    existing = column.drop_null().to_pylist()
    if not pa.types.is_integer(column.type):
        return pa.array(ids_like([str(name) for name in existing], total, rng)).cast(column.type)
    used, unused = set(existing), list[int]()
    low, high = min(existing), max(existing)
    while len(unused) < total:
        if 2 * len(used) > high - low:
            high += 2 * total
        number = int(rng.integers(low, high, endpoint=True))
        if number not in used:
            used.add(number)
            unused.append(number)
    return pa.array(unused, column.type)


def ids_like(existing: list[str], number: int, rng: np.random.Generator) -> list[str]:
    """Return `number` distinct ids that are not among the `existing` ones and have their form.

    Each new id has the length of a random existing id and, at each position, a character that existing ids of this
    length have there. This preserves prefixes, digits of counters and UUID versions.

    >>> ids_like(["cus_17", "cus_28"], 2, np.random.default_rng(0))
    ['cus_27', 'cus_18']

    Raises:
        InfeasibleError: if too few unused ids of this form are found.
    """
    by_length: dict[int, list[str]] = {}
    for name in existing:
        by_length.setdefault(len(name), []).append(name)
    alphabets = {
        length: [sorted(set(characters)) for characters in zip(*names, strict=True)]
        for length, names in by_length.items()
    }
    used, unused = set(existing), []
    for _ in range(_MAX_TRIES * number):
        like = existing[rng.integers(len(existing))]
        name = "".join(characters[rng.integers(len(characters))] for characters in alphabets[len(like)])
        if name not in used:
            used.add(name)
            unused.append(name)
        if len(unused) == number:
            return unused
    raise InfeasibleError(f"Expected the form of the ids to leave {number} unused ids, found {len(unused)}")


def mixed(table: "pa.Table", planted: "pa.Table", rng: np.random.Generator) -> "pa.Table":
    """Return the rows of both tables in random order, so that no row's position reveals a canary."""
    import pyarrow as pa

    joined = pa.concat_tables([table, planted])
    return joined.take(pa.array(rng.permutation(joined.num_rows)))
