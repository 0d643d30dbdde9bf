"""Alembic migrations: `lethe migrate` runs them.

A revision is named by its branch and its number, such as `core_0003`. By `core_0003_since_0002` it states that nothing
in it breaks the code that expects `core_0002`, or a later revision, and that none did since: running processes of that
release then go on while the next release is rolled out.
"""

import re
from collections.abc import Collection

_NAME = re.compile(r"([a-z_]+)_(\d{4})(?:_since_(\d{4}))?")


def parsed(revision: str) -> tuple[str, int, int]:
    """Return the branch and the number of a revision, and the oldest number whose code can use the schema."""
    name = _NAME.fullmatch(revision)
    if name is None:
        return revision, 1, 1
    branch, number, oldest = name.groups()
    return branch, int(number), int(oldest or number)


def are_usable(revisions: Collection[str], *, expected: Collection[str]) -> bool:
    """Return True if code that expects the revisions `expected` can use a database that has `revisions`, one of each
    branch. Of a branch that it does not know, the code expects number 0."""
    known = {branch: number for branch, number, _ in map(parsed, expected)}
    present = {branch: (number, oldest) for branch, number, oldest in map(parsed, revisions)}
    return known.keys() <= present.keys() and all(
        oldest <= known.get(branch, 0) <= number for branch, (number, oldest) in present.items()
    )
