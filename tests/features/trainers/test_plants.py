"""The socket PLANTS: rows that features plant in training tables, and judge."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from app.features.trainers import columns
from app.features.trainers.plants import Plant, Planted, PlantVerdict, Score, TrainingContext
from app.installations import Installation
from tests.features.trainers.conftest import PEOPLE

New = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("code", [None, "canary_found"])
def test_planted_rows_are_trained_on_and_can_stop_publication(
    plants: list[Plant],
    new_table: New,
    new_trainer: New,
    train: Callable[[], int],
    get: Callable[[str], Any],
    code: str | None,
) -> None:
    """Planted rows are used in training. The plant that added them can score any rows with the new artefacts, and can
    prevent the artefacts' publication by returning an error code. Its report is stored in either case."""
    losses: list[float] = []

    def plant(_: Installation, context: TrainingContext) -> Planted:
        assert context.rows.num_rows == 2 * PEOPLE
        rows = pa.table({"name": ["planted"], "age": [7]}, schema=context.rows.schema)
        left_out = pa.table({"name": ["left out"], "age": [7]}, schema=context.rows.schema)

        def judge(score: Score) -> PlantVerdict:
            losses.extend(score(pa.concat_tables([rows, left_out])))
            return PlantVerdict(code=code, report={"planted": 1})

        return Planted(rows=rows, judge=judge)

    plants.append(Plant(name="canaries", plant=plant))
    trainer = new_trainer(new_table()["id"], metrics=["rows"], score_command=["python", "score.py"])
    assert train() == 1
    assert np.array_equal(losses, [0.0, 1.0])
    [training] = get(f"/trainers/{trainer['id']}/trainings")["items"]
    assert (training["status"], training["error_code"]) == ("failed" if code else "published", code)
    assert training["metrics"] == ({} if code else {"rows": 2 * PEOPLE + 1})
    assert training["findings"] == {"canaries": {"planted": 1}}


def test_a_trainer_without_a_score_command_is_trained_without_plants(
    plants: list[Plant], new_table: New, new_trainer: New, train: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """If a trainer has no score command, no rows are planted in its training table."""
    plants.append(Plant(name="canaries", plant=lambda installation, context: pytest.fail("asked")))
    trainer = new_trainer(new_table()["id"])
    assert train() == 1
    assert get(f"/trainers/{trainer['id']}")["error_code"] is None


REPORTING = """\
import json, os
import pyarrow as pa
def read(name):
    with pa.memory_map(name) as file:
        return pa.ipc.open_stream(file).read_all()
rows, held_out = read("rows.arrow"), read("holdout.arrow")
found = {"rows": rows.to_pydict(), "held_out": held_out.to_pydict(), "variables": sorted(os.environ)}
json.dump(found | {"chunks": rows.column(0).num_chunks}, open("artefacts/names.txt", "w"))
"""


def test_planted_rows_are_indistinguishable(
    gateway: TestClient, plants: list[Plant], new_table: New, new_trainer: New, train: Callable[[], int]
) -> None:
    """Planted rows are mixed with people's rows, in the same order in both runs. They are never in the holdout, which
    contains all rows of some people and is excluded from training. Neither environment variables nor the chunks of the
    file reveal how many rows were planted."""

    def plant(_: Installation, context: TrainingContext) -> Planted:
        rows = pa.table({"name": ["planted"] * 20, "age": [7] * 20, "lethe_group": range(20)})
        return Planted(rows=rows.cast(context.rows.schema), judge=lambda score: PlantVerdict())

    plants.append(Plant(name="canaries", plant=plant))
    given = {"score_command": ["python", "score.py"], "group_ids": True, "holdout": 0.3, "repeat_one_in": 1}
    trainer = new_trainer(new_table()["id"], REPORTING, artefacts=["names.txt"], **given)
    assert train() == 1
    found = gateway.get(f"/v1/trainers/{trainer['id']}/artefacts/names.txt").json()
    is_planted = [name == "planted" for name in found["rows"]["name"]]
    assert (sum(is_planted), len(is_planted), found["chunks"]) == (20, 20 + 2 * (PEOPLE - 6), 1)
    assert not all(is_planted[-20:])
    held_out = found["held_out"]["name"]
    assert sorted(held_out) == sorted(2 * list(set(held_out)))
    assert set(held_out) | set(found["rows"]["name"]) == {f"np{one}" for one in range(PEOPLE)} | {"planted"}
    assert not set(held_out) & set(found["rows"]["name"])
    assert not any("PLANT" in name for name in found["variables"])


@pytest.mark.parametrize(
    ("people", "holdout", "expected"), [(1, 0.5, 0), (2, 0.1, 1), (3, 0.5, 2), (40, 0.1, 4), (40, 0, 0)]
)
def test_holdout_and_training_table_both_have_people(people: int, holdout: float, expected: int) -> None:
    """The holdout contains the requested fraction of people, and at least one person is left for training."""
    table = columns.with_tokens(
        pa.table({"a": range(people)}), columns.tokens(people), [f"p{i}" for i in range(people)]
    )
    assert [part.num_rows for part in columns.split(table, holdout=holdout)] == [people - expected, expected]
