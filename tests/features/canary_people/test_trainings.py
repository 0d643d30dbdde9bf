"""Canaries in training runs: an honest trainer passes, and one that keeps forgotten people is stopped."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from app.features.canary_people import jobs
from app.features.canary_people.plants import _unpacked
from app.features.canary_people.tables import CanaryRound
from app.features.trainers.columns import to_bytes
from app.features.trainers.tables import Trainer
from app.installations import Installation

New = Callable[..., dict[str, Any]]

TRAIN = """\
import json, os
import pyarrow as pa
def rows(name):
    with pa.memory_map(name) as file:
        return pa.ipc.open_stream(file).read_all().to_pylist()
known = [[row["a"], row["b"]] for row in rows("rows.arrow")]
if os.path.exists("more.hex"):
    more = pa.ipc.open_stream(bytes.fromhex(open("more.hex").read())).read_all().to_pylist()
    known += [[row["a"], row["b"]] for row in more]
json.dump(sorted(known), open("artefacts/model.json", "w"))
"""
"""A trainer that memorises its rows, and rows that were left among its files."""
SCORE = """\
import json
import numpy as np
import pyarrow as pa
known = {tuple(pair) for pair in json.load(open("artefacts/model.json"))}
with pa.memory_map("rows.arrow") as file:
    rows = pa.ipc.open_stream(file).read_all().to_pylist()
np.save("losses.npy", np.array([float((row["a"], row["b"]) not in known) for row in rows]))
"""
PEOPLE = 210


@pytest.fixture
def trainer(new_table: New, new_trainer: New) -> dict[str, Any]:
    """Return a trainer for a table of people whose columns are pairwise independent."""
    numbers = np.random.default_rng(0).permutation(PEOPLE)
    table = pa.table({"subject": [f"p{one}" for one in range(PEOPLE)], "a": range(PEOPLE), "b": numbers})
    files = {"train.py": TRAIN, "score.py": SCORE}
    given = {"files": files, "artefacts": ["model.json"], "score_command": ["python", "score.py"]}
    return new_trainer(new_table(to_bytes(table))["id"], canary_people=20, **given)


def test_honest_trainer_is_clean(
    trainer: dict[str, Any],
    installation: Installation,
    train: Callable[[], int],
    forget: New,
    get: Callable[[str], Any],
) -> None:
    """The first training run has no forgotten canaries and reports "no power". The next training run is clean, and the
    deletion request that it serves completes. The request's bundle states the p-value, the power and the number of
    canaries. Canaries that are no longer needed cannot be decrypted."""
    assert train() == 1
    with installation.database.reading() as session:
        [before] = [row.content for row in session.query(CanaryRound)]
    request = forget("p3")
    assert train() == 1
    second, first = get(f"/trainers/{trainer['id']}/trainings")["items"]
    assert (first["findings"]["canary_people"]["outcome"], first["error_code"]) == ("no_power", None)
    verdict = second["findings"]["canary_people"]
    assert (verdict["outcome"], verdict["planted"], verdict["never"]) == ("clean", 20, 1000)
    assert verdict["p_value"] > verdict["level"] == 1e-6
    assert verdict["power"] > 0.99
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    stated = get(f"/deletion-requests/{request['id']}/bundle")
    [line] = [line for line in stated["statement"]["lines"] if line["system"]["kind"] == "trainer"]
    assert line["evidence"]["findings"]["canary_people"] == verdict
    jobs.destroy_canaries(installation)
    jobs.destroy_canaries(installation)
    assert installation.vault.open(before) is None
    with installation.database.reading() as session:
        assert sorted(row.content is None for row in session.query(CanaryRound)) == [False, True]


def test_a_trainer_that_reuses_forgotten_rows_is_stopped(
    trainer: dict[str, Any],
    gateway: TestClient,
    installation: Installation,
    train: Callable[[], int],
    forget: New,
    get: Callable[[str], Any],
) -> None:
    """The canary test detects that the trainer kept a copy of an earlier training run's rows among its files. The run
    publishes nothing, the request stays open, and the live artefacts are withheld. A retry after the copy has been
    removed is refused with the same alarm."""
    assert train() == 1
    assert gateway.get(f"/v1/trainers/{trainer['id']}/artefacts/model.json").status_code == 200
    with installation.database.writing() as session:
        [canaries] = session.query(CanaryRound)
        kept = _unpacked(installation.vault.open(canaries.content) or b"").planted
        row = session.get_one(Trainer, trainer["id"])
        files = row.specification["files"] | {"more.hex": to_bytes(kept).hex()}
        row.specification = row.specification | {"files": files}
    request = forget("p3")
    assert train() == 1
    stopped = get(f"/trainers/{trainer['id']}/trainings")["items"][0]
    assert (stopped["status"], stopped["error_code"]) == ("failed", "canary_alarm")
    verdict = stopped["findings"]["canary_people"]
    assert verdict["p_value"] < verdict["level"]
    assert (verdict["planted"], verdict["power"] > 0.99) == (20, True)
    assert get(f"/deletion-requests/{request['id']}")["status"] != "completed"
    assert gateway.get(f"/v1/trainers/{trainer['id']}/artefacts/model.json").status_code == 409
    with installation.database.writing() as session:
        row = session.get_one(Trainer, trainer["id"])
        files = {name: text for name, text in row.specification["files"].items() if name != "more.hex"}
        row.specification, row.retry_at = row.specification | {"files": files}, None
    assert train() == 1
    assert get(f"/trainers/{trainer['id']}/trainings")["items"][0]["error_code"] == "canary_alarm"


@pytest.mark.parametrize("wanted", [0, 20])
def test_canaries_are_omitted_if_disabled_or_if_the_table_is_small(
    wanted: int, new_table: New, new_trainer: New, train: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """If a trainer disables canaries or its table has too few rows, the training run uses no canaries and reports no
    verdict."""
    trainer = new_trainer(new_table()["id"], score_command=["python", "score.py"], canary_people=wanted)
    assert train() == 1
    [training] = get(f"/trainers/{trainer['id']}/trainings")["items"]
    assert (training["status"], training["findings"]) == ("published", {})
