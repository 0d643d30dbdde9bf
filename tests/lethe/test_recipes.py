"""docs/recipes.md does what it says."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.config import Settings
from lethe import Client
from tests.conftest import ADULT
from tests.faults import processes

RECIPES = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text().split("\n## ")[1:]
BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allowed_networks": "127.0.0.0/8"})


@pytest.fixture
def shell(settings: Settings, admin_key: str, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """What a recipe's commands print, beside a gateway with a model; a variable that one sets the next has."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / ".lethe").symlink_to(settings.data_dir)
    rows = tmp_path / "rows.csv"
    rows.write_text("".join((ADULT / "train.csv").read_text().splitlines(keepends=True)[:2001]))
    with processes.gateway(settings) as (_, address), processes.worker(settings):
        with Client(address, admin_key) as client:
            dataset = client.datasets.upload(rows, name="adult", schema=ADULT / "schema.json")
            client.models.wait(client.models.create(name="income", dataset_id=dataset.id).id, timeout_seconds=300)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
        environment |= {
            "LETHE_URL": address,
            "LETHE_DATA_DIR": str(settings.data_dir),
            "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        }
        variables = tmp_path / "variables"
        variables.touch()

        def run(commands: str) -> str:
            script = f"set -ea\n. {variables}\n{commands}\nexport -p > {variables}\n"
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, done.stdout
            return done.stdout

        yield run


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.splitlines()[0])
def test_a_recipe_prints_what_is_printed_under_it(recipe: str, shell: Callable[[str], str], tmp_path: Path) -> None:
    """Files are written, commands run, in their order; the words printed are the same, numbers and ids are of the
    day."""
    printed, compared = "", 0
    for kind, block in BLOCK.findall(recipe):
        if kind == "python":
            name = block.splitlines()[0].removeprefix("# ")
            (tmp_path / "here" / name).write_text(block)
        elif kind == "sh":
            printed = shell(block)
            print(printed)
        else:
            assert words(printed) == words(block)
            compared += 1
    assert compared


def words(text: str) -> list[str]:
    """Without what is of the day: ids, hashes, times, numbers of guarantees and of the audit log."""
    text = re.sub(r"\b[a-z]+_[0-9a-f]{20}\b|\b[0-9a-f]{64}\b|\bkey [\w-]+", "ID", text)
    text = re.sub(r"[0-9]+ entries, signed up to [0-9]+ \([0-9]+ ", "N (N ", text)
    text = re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", "TIME", text)
    return re.sub(r"[0-9.]+(e-[0-9]+)?\b(?= at|$)|(?<== )[0-9.e-]+", "N", text, flags=re.MULTILINE).split()
