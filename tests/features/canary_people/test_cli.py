"""`lethe canaries`: rounds of canaries for a pipeline outside of Lethe."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from tests.command_line import Lethe, refused


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pyarrow.csv.read_csv(path).to_pylist()
    return found


@pytest.fixture
def people(tmp_path: Path) -> Path:
    columns = {"id": [f"c{100_000 + 37 * number}" for number in range(500)], "a": range(500), "b": range(500, 1000)}
    path = tmp_path / "people.csv"
    pyarrow.csv.write_csv(pa.table(columns | {"label": ["yes", "no"] * 250}), path)
    return path


def scored(folder: Path, known: list[dict[str, Any]]) -> Path:
    """Write the losses of a model that has memorised the known rows, and return the file's path."""
    path = folder / "losses.txt"
    path.write_text("\n".join(str(float(row not in known)) for row in rows(folder / "score.csv")))
    return path


@pytest.mark.slow
def test_rounds_of_an_external_pipeline_are_judged(lethe: Lethe, people: Path, tmp_path: Path) -> None:
    """Each round plants canaries and then forgets them. A model that forgets them is judged clean, a model that keeps
    them raises an alarm, and a model that was never trained on any yields "no power". Each outcome has its own exit
    status."""
    first, second = tmp_path / "1", tmp_path / "2"
    draw = ("canaries", "draw", str(people))
    options = ("--number", "40", "--id-column", "id")
    assert lethe(*draw, str(first), *options).json["forget"] == 0
    planted = rows(first / "plant.csv")
    assert len(planted) == 40
    ended = lethe("canaries", "judge", str(first), str(scored(first, planted)))
    assert (ended.code, json.loads(ended.out)["outcome"]) == (3, "no_power")
    assert lethe(*draw, str(second), *options, "--after", str(first)).json["forget"] == 40
    forgotten = rows(second / "forget.csv")
    assert sorted(row["id"] for row in forgotten) == sorted(row["id"] for row in planted)
    present = rows(second / "plant.csv")
    judge = ("canaries", "judge", str(second))
    assert lethe(*judge, str(scored(second, present))).json["outcome"] == "clean"
    ended = lethe(*judge, str(scored(second, present + planted)))
    assert (ended.code, json.loads(ended.out)["outcome"]) == (1, "alarm")
    ended = lethe(*judge, str(scored(second, [])))
    assert (ended.code, json.loads(ended.out)["outcome"]) == (3, "no_power")
    # One test of the first round and three of the second; the same losses are no further test.
    assert lethe(*judge, str(scored(second, present))).json["outcome"] == "clean"
    assert len(json.loads((second / "state.json").read_text())["judged"]) == 4


def test_pipeline_files_do_not_reveal_which_canaries_were_planted(lethe: Lethe, people: Path, tmp_path: Path) -> None:
    """The files for a pipeline contain only the columns of its table. The order of their rows does not reveal which
    canaries were planted."""
    folder = tmp_path / "1"
    lethe("canaries", "draw", str(people), str(folder), "--number", "40", "--id-column", "id")
    planted, score = rows(folder / "plant.csv"), rows(folder / "score.csv")
    assert all(list(row) == ["id", "a", "b", "label"] for row in planted + score)
    assert len({row["id"] for row in score}) == len(score) == 1040
    places = [place for place, row in enumerate(score) if row in planted]
    assert len(places) == 40
    assert places[-1] - places[0] > 500


def test_invalid_input_is_refused_in_one_line(lethe: Lethe, people: Path, tmp_path: Path) -> None:
    """Too few losses, losses that are not numbers, NaN, an unknown column and too few canaries are each refused with a
    one-line error."""
    folder = tmp_path / "1"
    refused(lethe("canaries", "draw", str(people), str(folder), "--number", "3"), "input_invalid")
    refused(lethe("canaries", "draw", str(people), str(folder), "--id-column", "name"), "input_invalid")
    lethe("canaries", "draw", str(people), str(folder), "--number", "40")
    for number, losses in enumerate(("1 2 3", "one", "nan " * 1040)):
        path = tmp_path / f"{number}.txt"
        path.write_text(losses)
        refused(lethe("canaries", "judge", str(folder), str(path)), "input_invalid")
    assert json.loads((folder / "state.json").read_text())["judged"] == []
