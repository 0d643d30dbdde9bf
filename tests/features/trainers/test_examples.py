"""The examples: each trainer runs in the sandbox without a network, gives the same result twice, and reaches its
metric."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

from app.features.trainers import columns, execution

EXAMPLES = Path(__file__).parents[3] / "examples"
LIMITS = {"seconds": 300, "memory_mib": 2048, "processes": 64, "artefacts_mib": 32}


def census() -> pa.Table:
    """Return the census data of both files without the column `person`."""
    tables = [pa.csv.read_csv(EXAMPLES / "adult" / f"{name}.csv") for name in ("train", "test")]
    return pa.concat_tables(tables).drop_columns(["person"])


def shopping() -> pa.Table:
    """Return synthetic people from several towns, whose purchases depend on age and town."""
    generator = np.random.default_rng(0)
    town, age = generator.integers(8, size=1000), generator.integers(18, 80, size=1000)
    bought = age + 6 * town + generator.normal(scale=5, size=1000) > 70
    names = [f"town {place}" for place in town]
    return pa.table({"town": names, "age": age, "income": generator.normal(size=1000) + town, "bought": bought})


def ratings() -> pa.Table:
    """Return synthetic ratings by people who each like one of four kinds of items."""
    generator = np.random.default_rng(0)
    person = np.repeat(np.arange(200), 8)
    item = np.concatenate([generator.permutation(10)[:8] + 10 * (index % 4) for index in range(200)])
    rating = generator.integers(3, 6, size=len(item))
    return pa.table({"item": [f"item {one}" for one in item], "rating": rating, "lethe_group": person})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "artefacts", "metric", "minimum"),
    [
        pytest.param(
            "adult_xgboost", census, ["model.json", "categories.json"], "accuracy", 0.87, marks=pytest.mark.soak
        ),
        ("target_encoding", shopping, ["pipeline.pickle"], "accuracy", 0.8),
        pytest.param("small_network", shopping, ["network.npz"], "accuracy", 0.75, marks=pytest.mark.soak),
        ("item_item", ratings, ["similarity.npz"], "hit_rate", 0.6),
    ],
)
def test_example_is_hermetic(
    name: str, rows: Callable[[], pa.Table], artefacts: list[str], metric: str, minimum: float
) -> None:
    """Each example runs in the sandbox with the environment of its lock file, produces the same artefacts twice from
    the same rows and seed, and reaches its metric on held-out people. If it has a score.py, that file scores each
    row."""
    folder = EXAMPLES / "trainers" / name
    execution.check_lock((folder / "lock.txt").read_text())
    specification: dict[str, Any] = LIMITS | {
        "command": ["python", "train.py"],
        "score_command": ["python", "score.py"],
        "files": {path.name: path.read_text() for path in folder.glob("*.py")},
        "artefacts": artefacts,
        "metrics": [metric],
    }
    table = rows()
    people = np.array(table["lethe_group"] if "lethe_group" in table.column_names else np.arange(table.num_rows))
    is_held_out = pa.array(np.isin(people, np.random.default_rng(1).permutation(people.max() + 1)[::5]))
    inputs = {
        "rows.arrow": columns.to_bytes(columns.mixed([table.filter(pc.invert(is_held_out))])),
        "holdout.arrow": columns.to_bytes(table.filter(is_held_out)),
    }
    commands = execution.Commands(specification, seed=12345, look=lambda: None)
    outputs = commands.train(inputs)
    assert execution.read_metrics(outputs["metrics.json"], names=[metric])[metric] >= minimum
    assert commands.train(inputs) == outputs
    if (folder / "score.py").exists():
        losses = commands.score({one: outputs[f"artefacts/{one}"] for one in artefacts}, table.slice(0, 500))
        assert 0 < losses.mean() < 0.5
