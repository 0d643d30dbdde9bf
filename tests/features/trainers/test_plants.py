"""The socket PLANTS: rows that features plant in trainings, and judge."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.features.trainers.plants import Plant, Planted, Score, TrainingContext, Verdict
from app.installations import Installation
from tests.features.trainers.conftest import PEOPLE

New = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("code", [None, "canary_found"])
def test_plants_are_trained_on_scored_and_may_stop_publication(
    plants: list[Plant],
    new_table: New,
    new_trainer: New,
    train: Callable[[], int],
    get: Callable[[str], Any],
    code: str | None,
) -> None:
    """A planted row is trained on and left out of the metrics; its plant measures losses of any rows under the new
    artefacts, and its code stops the publication."""
    losses: list[float] = []

    def plant(_: Installation, context: TrainingContext) -> Planted:
        assert context.rows.num_rows == 2 * PEOPLE
        rows = pa.table({"name": ["planted"], "age": [7]}, schema=context.rows.schema)
        left_out = pa.table({"name": ["left out"], "age": [7]}, schema=context.rows.schema)

        def judge(score: Score) -> Verdict:
            losses.extend(score(pa.concat_tables([rows, left_out])))
            return Verdict(code=code, report={"planted": 1})

        return Planted(rows=rows, judge=judge)

    plants.append(Plant(name="canaries", plant=plant))
    trainer = new_trainer(new_table()["id"], metrics=["rows"], score_command=["python", "score.py"])
    assert train() == 1
    assert np.array_equal(losses, [0.0, 1.0])
    [training] = get(f"/trainers/{trainer['id']}/trainings")["items"]
    assert (training["status"], training["error_code"]) == ("failed" if code else "published", code)
    assert training["metrics"] == ({} if code else {"rows": 2 * PEOPLE})


def test_plants_are_not_asked_without_a_score_command(
    plants: list[Plant], new_table: New, new_trainer: New, train: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """A trainer that cannot score is trained without plants."""
    plants.append(Plant(name="canaries", plant=lambda installation, context: pytest.fail("asked")))
    trainer = new_trainer(new_table()["id"])
    assert train() == 1
    assert get(f"/trainers/{trainer['id']}")["error_code"] is None
