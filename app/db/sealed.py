"""Columns that hold what callers write of their own: values in Python, sealed bytes in the database.

Nothing else of a person may be in a row: what a database has stored once, its log, replicas and backups keep. Who seals
and opens is the engine's vault, which is given to `Database`; a database without one opens nothing and takes nothing.
"""

import base64
import dataclasses
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session


class Vault(Protocol):
    """Seals under keys that can be destroyed (`app.vault.pieces`)."""

    def seal(self, content: bytes, *, key: str | None = None) -> bytes: ...
    def open(self, sealed: bytes) -> bytes | None: ...
    def at_once(self) -> AbstractContextManager[None]: ...
    def key_of(self, sealed: bytes) -> str: ...
    def reference(self, text: str) -> str: ...
    def record_key(self, dataset_id: str) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """Fields that are sealed together. `key`: the name of the key that they are sealed under; None before they are
    stored."""

    key: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Particulars(Private):
    """The words of callers and officers about a request."""

    external_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    callback_urls: list[str] = field(default_factory=list)
    extension_reason: str | None = None
    rejection_explanation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload(Private):
    """The text that is sent to a receiver, and where."""

    url: str = ""
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Private):
    """Words about a request for those who decide, and for nobody else."""

    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName(Private):
    """The name of a file about a request, which is personal as often as not."""

    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedFile(Private):
    """The bytes of a file about a request."""

    base64: str = field(default="", repr=False)

    @classmethod
    def of(cls, content: bytes, *, key: str) -> Self:
        return cls(key=key, base64=base64.b64encode(content).decode())

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.base64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticator(Private):
    """The secret that somebody's authenticator app shares with the service (RFC 6238, base32)."""

    secret: str = field(default="", repr=False)


class Sealed(sa.TypeDecorator[Private]):
    """A `Private` value; NULL where there is nothing in it. One whose key was destroyed comes back with nothing in it.

    A value that was changed (`dataclasses.replace`) is sealed under the key that it had: to destroy that destroys all
    that was ever stored of it.
    """

    impl = sa.LargeBinary
    cache_ok = True

    def __init__(self, kind: type[Private]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Private | None, dialect: sa.Dialect) -> bytes | None:
        if value is None or value == self.kind():
            return None
        content = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.name != "key"}
        return _vault(dialect).seal(json.dumps(content, separators=(",", ":")).encode(), key=value.key)

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> Private:
        vault = _given(dialect)
        if value is None or vault is None:
            return self.kind()
        content = vault.open(value)
        return self.kind(key=vault.key_of(value), **(json.loads(content) if content is not None else {}))


class Reference(sa.TypeDecorator[str]):
    """The reference by which a sealed text is found (`refers_to`): its keyed hash. It is set to the text itself."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else _vault(dialect).reference(value)


def refers_to(session: Session, column: InstrumentedAttribute[Any], text: str) -> sa.ColumnElement[bool]:
    """A condition: a column is the reference of a text, which is hashed before it is part of a statement: SQLAlchemy
    keeps statements, with the values that each was made with first."""
    return sa.type_coerce(column, sa.String) == _vault(session.get_bind().dialect).reference(text)


def new_key(session: Session) -> str:
    """The name of a key that seals nothing yet, for several values that are to end together."""
    vault = _vault(session.get_bind().dialect)
    return vault.key_of(vault.seal(b""))


def record_key(session: Session, dataset_id: str) -> bytes:
    """The key of the check values of a dataset's records (`app.rows.records`)."""
    return _vault(session.get_bind().dialect).record_key(dataset_id)


def opening(session: Session) -> AbstractContextManager[None]:
    """A block in which this thread reads many rows: what is sealed in them is opened at less cost for each."""
    vault = _given(session.get_bind().dialect)
    return nullcontext() if vault is None else vault.at_once()


_VAULT = "lethe_vault"


def give(engine: sa.Engine, vault: Vault) -> None:
    """Let the columns of this engine seal and open: a type is told its dialect, which each engine has of its own."""
    setattr(engine.dialect, _VAULT, vault)


def _given(dialect: sa.Dialect) -> Vault | None:
    found: Vault | None = getattr(dialect, _VAULT, None)
    return found


def _vault(dialect: sa.Dialect) -> Vault:
    found = _given(dialect)
    if found is None:
        raise RuntimeError("This database was opened without a vault.")
    return found
