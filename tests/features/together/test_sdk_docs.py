"""docs/sdk.md lists the calls of every feature."""

import re
from pathlib import Path

from lethe import Client

ROOT = Path(__file__).parents[3]


def test_every_method_is_listed() -> None:
    """The table in docs/sdk.md lists exactly the client's resources and their methods."""
    table = (ROOT / "docs" / "sdk.md").read_text().split("## All methods")[1].split("\n\n")[1]
    listed: dict[str, set[str]] = {}
    names: list[str] = []
    for row in table.splitlines()[2:]:
        first, methods, _ = row.strip("|").split("|")
        names = re.findall(r"`(\w+)`", first) or names
        for name in names:
            listed.setdefault(name, set()).update(re.findall(r"`([\w.]+)`", methods))
    with Client("http://127.0.0.1:1", "lethe_key") as client:
        there = {name: public(resource) for name, resource in vars(client).items() if not name.startswith("_")}
    for name, methods in there.items():
        assert methods <= listed[name] | {one.removeprefix(f"{name}.") for one in listed[name]}, name
    both = there["datasets"] | there["models"] | there["runs"] | {"datasets.subject", "datasets.recheck"}
    for name, said in listed.items():
        assert said <= (both if name in ("datasets", "models", "runs") else there[name]), name
    assert listed.keys() == there.keys()


def public(resource: object) -> set[str]:
    return {name for name in dir(resource) if not name.startswith("_")}
