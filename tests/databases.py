"""Tests that run on both databases: once on SQLite and once on PostgreSQL."""

from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class OnBothDatabases:
    """The tests of a folder that run on both databases, by files and folders in it.

    Attributes:
        where_different: Tests of locks, snapshots and statements that the two databases plan or spell differently, and
            one walk through all other statements. They always run on both databases.
        with_soak: Tests that run on PostgreSQL with the soak only.
    """

    folder: Path
    where_different: tuple[str, ...]
    with_soak: tuple[str, ...]

    def __post_init__(self) -> None:
        places = self.where_different + self.with_soak
        gone = [place for place in places if not (self.folder / place).exists()]
        assert not gone, f"No such tests to run on PostgreSQL: {gone}"

    def parametrize(self, metafunc: pytest.Metafunc) -> None:
        """Run a test that uses the fixture `kind` once on each database."""
        path = metafunc.definition.path
        if "kind" not in metafunc.fixturenames or not path.is_relative_to(self.folder):
            return
        place = path.relative_to(self.folder).as_posix()
        if not place.startswith(self.where_different + self.with_soak):
            return
        marks = [pytest.mark.postgres, *([] if place.startswith(self.where_different) else [pytest.mark.soak])]
        kinds = ["sqlite", pytest.param("postgresql", marks=marks)]
        metafunc.parametrize("kind", kinds, indirect=True, scope="session")
