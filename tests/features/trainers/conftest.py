"""Fixtures: a table of made-up people, trainers of a few lines, and a worker that erases and trains."""

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from app.features.trainers import jobs, training
from app.installations import Installation
from app.operations.periodic_jobs import settle

COUNTING = """\
import json, os
import pyarrow as pa
with pa.memory_map("rows.arrow") as file:
    table = pa.ipc.open_stream(file).read_all()
names = sorted(table.column("name").to_pylist())
open("artefacts/names.txt", "w").write(" ".join(names))
open("artefacts/columns.txt", "w").write(" ".join(table.column_names))
json.dump({"rows": table.num_rows}, open("metrics.json", "w"))
"""
"""A trainer that memorises its rows: its artefact lists the people in them."""
SCORING = """\
import numpy as np
import pyarrow as pa
known = open("artefacts/names.txt").read().split()
with pa.memory_map("rows.arrow") as file:
    names = pa.ipc.open_stream(file).read_all().column("name").to_pylist()
np.save("losses.npy", np.array([0.0 if name in known else 1.0 for name in names]))
"""
PEOPLE = 20


def arrow(people: int = PEOPLE, *, rows_each: int = 2) -> bytes:
    """Return an Arrow upload with people `p0`, `p1`, ... who have `rows_each` rows each. The column `name` is derived
    from the subject."""
    subjects = [f"p{index // rows_each}" for index in range(people * rows_each)]
    table = pa.table({"subject": subjects, "name": [f"n{s}" for s in subjects], "age": list(range(len(subjects)))})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.fixture
def new_table(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Return a function that uploads a training table and returns the created table."""

    def create(content: bytes | None = None, *, filename: str = "people.arrow", **form: str) -> dict[str, Any]:
        fields = {"name": "people", "subject_column": "subject"} | form
        files = {"file": (filename, arrow() if content is None else content)}
        answer = gateway.post("/v1/training-tables", data=fields, files=files)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return create


@pytest.fixture
def new_trainer(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Return a function that registers a trainer with the source `train.py` and returns the created trainer."""

    def create(table_id: str, source: str = COUNTING, **given: Any) -> dict[str, Any]:
        files = {"train.py": source, "score.py": SCORING}
        body = {"name": "counter", "table_id": table_id, "command": ["python", "train.py"], "files": files, "lock": ""}
        body |= {"artefacts": ["names.txt", "columns.txt"], "repeat_one_in": 1000, "holdout": 0}
        answer = gateway.post("/v1/trainers", json=body | given)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return create


@pytest.fixture
def train(installation: Installation, work: Callable[[], int]) -> Callable[[], int]:
    """Return a function that does all due runs and training jobs as a worker would, and returns the number of training
    jobs."""

    def until_idle() -> int:
        work()
        jobs.erase_from_tables(installation)
        count = 0
        while training.run_next(installation):
            count += 1
        settle(installation)
        return count

    return until_idle


@pytest.fixture
def names(gateway: TestClient) -> Callable[[str], set[str]]:
    """Return a function that reads the names in a trainer's live artefact."""

    def read(trainer_id: str) -> set[str]:
        answer = gateway.get(f"/v1/trainers/{trainer_id}/artefacts/names.txt")
        assert answer.status_code == 200, answer.text
        return set(answer.text.split())

    return read


@pytest.fixture
def plants(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of installed plants, which is empty at first and to which tests can add plants."""
    installed: list[Any] = []
    monkeypatch.setattr("app.features.trainers.plants.installed", lambda: tuple(installed))
    return installed
