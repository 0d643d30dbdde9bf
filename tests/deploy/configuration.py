"""The settings as a table, which `python -m tests.deploy.configuration` writes into docs/configuration.md."""

import re
from pathlib import Path
from typing import Any

from app.config import Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
_TABLE = re.compile(r"^\| variable .*?(?=^\n|\Z)", re.DOTALL | re.MULTILINE)
_BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
_FORMATS = {"path": "path", "password": "text, secret"}


def table() -> str:
    """Return a table with one row per setting, in the order of `Settings`: variable, values, default and
    description."""
    lines = ["| variable | values | default | what it is |", "|---|---|---|---|"]
    for name, schema in Settings.model_json_schema()["properties"].items():
        default = "" if schema.get("default") is None else f"`{schema['default']}`"
        lines.append(f"| `LETHE_{name.upper()}` | {_values(schema)} | {default} | {schema['description']} |")
    return "\n".join(lines) + "\n"


def _values(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        [schema] = [one for one in schema["anyOf"] if one.get("type") != "null"]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = _FORMATS.get(schema.get("format", ""), schema["type"].replace("string", "text"))
    return ", ".join([kind, *(f"{sign} {schema[bound]:g}" for bound, sign in _BOUNDS.items() if bound in schema)])


def written() -> str:
    """Return the page with the current table in it."""
    found = _TABLE.search(PAGE.read_text())
    return found[0] if found else ""


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text()))
