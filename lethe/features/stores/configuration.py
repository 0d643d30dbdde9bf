"""The agent's configuration: a TOML file with the system, its key and its stores."""

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.features.stores import chroma, documents, lance, postgres, store

_FIELDS = {
    "chroma": ({"path", "collection", "identifier"}, chroma.Chroma),
    "lancedb": ({"path", "table", "identifier", "record_id"}, lance.LanceDB),
    "pgvector": ({"url", "table", "identifier", "record_id"}, postgres.PGVector),
    "documents": ({"path", "pattern"}, documents.Documents),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Configuration of the agent. `system` is the system's id, and `sign_with` the file with its private Ed25519 JWK;
    both are needed only for answering tasks. `identify` is a command that gets a request's external id as its last
    argument and prints the person's identifiers, one per line; by default the external id is the identifier. `stop` and
    `start` are commands to run before and after the work. `stores` maps names to stores, and `state` is the folder for
    journals."""

    state: Path
    stores: dict[str, store.Store]
    system: str | None = None
    sign_with: Path | None = None
    identify: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


def load(path: Path) -> Configuration:
    """Read a configuration. Relative paths in it are resolved against the file's folder. Raises `StoreError`."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise store.StoreError("configuration_invalid", f"{path} is not a TOML file ({type(error).__name__})") from None
    folder, stores = path.parent, {}
    for name, fields in document.pop("stores", {}).items():
        stores[name] = _store(name, dict(fields), folder)
    unknown = document.keys() - {field.name for field in dataclasses.fields(Configuration)}
    if unknown or not stores or not isinstance(document.get("state", ""), str):
        expected = f"no {', '.join(sorted(unknown))}" if unknown else "a table [stores.NAME] for each store"
        raise store.StoreError("configuration_invalid", f"Expected {expected} in {path.name}")
    commands = {name: _command(document.get(name, [])) for name in ("identify", "stop", "start")}
    state = folder / document.get("state", ".lethe-stores")
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = document.get("sign_with")
    return Configuration(
        state=state, stores=stores, system=document.get("system"), sign_with=folder / key if key else None, **commands
    )


def _store(name: str, fields: dict[str, Any], folder: Path) -> store.Store:
    kind = fields.pop("kind", None)
    if kind not in _FIELDS or not name.replace("-", "").replace("_", "").isalnum():
        raise store.StoreError("configuration_invalid", f"Expected a kind of {', '.join(_FIELDS)} for store {name}")
    expected, make = _FIELDS[kind]
    if fields.keys() != expected or not all(isinstance(value, str) for value in fields.values()):
        raise store.StoreError(
            "configuration_invalid", f"Expected the texts {', '.join(sorted(expected))} for store {name}"
        )
    if "path" in fields:
        fields["path"] = folder / fields["path"]
    made: store.Store = make(**fields)
    return made


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise store.StoreError("configuration_invalid", "Expected commands as lists of texts")
    return tuple(value)
