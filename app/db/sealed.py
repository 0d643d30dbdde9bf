"""Sealed columns: text written by callers is plaintext in Python and ciphertext in the database.

Rows must hold no other personal data, because logs, replicas and backups of the database keep every value ever stored.
The installation's vault, passed to `Database`, seals and opens texts; a database without a vault can do neither.
"""

import dataclasses
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.keys import WrappedUnderAnotherKey
from lethe.contract.problems import SealedTextDamaged


class Sealer(Protocol):
    """Vault that seals content under keys that can be destroyed (`app.vault.pieces`)."""

    def seal(self, content: bytes, *, key: str | None = None) -> bytes: ...
    def open(self, sealed: bytes) -> bytes | None: ...
    def at_once(self) -> AbstractContextManager[None]: ...
    def key_of(self, sealed: bytes) -> str: ...
    def key_of_damaged(self, sealed: bytes) -> str: ...
    def reference(self, text: str) -> str: ...
    def record_key(self, dataset_id: str) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """Fields that are sealed together. `key` is the name of their sealing key; None before they are stored. A value is
    damaged if it or its key differs from what was stored; reading a sealed field then raises `SealedTextDamaged`."""

    key: str | None = field(default=None, compare=False)
    is_damaged: bool = field(default=False, compare=False)

    @classmethod
    def damaged(cls, key: str) -> Self:
        value = object.__new__(cls)
        object.__setattr__(value, "key", key)
        object.__setattr__(value, "is_damaged", True)
        return value

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):
                raise AttributeError(name)
            raise SealedTextDamaged(
                "The stored text or its key in the vault is damaged: nothing reads or replaces it. Put back the file "
                "that the log names, or restore a backup with the tombstones."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Particulars(Private):
    """Texts that callers and officers wrote about a request."""

    external_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    callback_urls: list[str] = field(default_factory=list)
    extension_reason: str | None = None
    rejection_explanation: str | None = None


class Sealed(sa.TypeDecorator[Private]):
    """Column for a `Private` value. Empty values are NULL, and a value whose key was destroyed is read as empty. A
    value that cannot be opened is read as damaged. A changed value (`dataclasses.replace`) is sealed under its previous
    key, so that destroying this key destroys every stored version of the value."""

    impl = sa.LargeBinary
    cache_ok = True

    def __init__(self, kind: type[Private]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Private | None, dialect: sa.Dialect) -> bytes | None:
        if value is None or value == self.kind():
            return None
        names = {field.name for field in dataclasses.fields(value)} - {"key", "is_damaged"}
        content = {name: getattr(value, name) for name in names}
        return _vault(dialect).seal(json.dumps(content, separators=(",", ":")).encode(), key=value.key)

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> Private:
        vault = _given(dialect)
        if value is None or vault is None:
            return self.kind()
        try:
            content = vault.open(value)
        except (ValueError, FileNotFoundError, WrappedUnderAnotherKey):
            return self.kind.damaged(vault.key_of_damaged(value))
        return self.kind(key=vault.key_of(value), **(json.loads(content) if content is not None else {}))

    def compare_values(self, x: Any, y: Any) -> bool:
        """Return True only for the same object, because damaged values cannot be compared."""
        return x is y


class Reference(sa.TypeDecorator[str]):
    """Column with the keyed hash used to find a sealed text (`refers_to`). Assign the text itself to the column."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else _vault(dialect).reference(value)


def refers_to(session: Session, column: InstrumentedAttribute[Any], text: str) -> sa.ColumnElement[bool]:
    """Return the condition that a column references `text`. The text is hashed before it enters the statement, because
    SQLAlchemy caches statements with the values from their first use."""
    return sa.type_coerce(column, sa.String) == _vault(session.get_bind().dialect).reference(text)


def new_key(session: Session) -> str:
    """Return the name of a fresh sealing key, for several values that are to be destroyed together."""
    vault = _vault(session.get_bind().dialect)
    return vault.key_of(vault.seal(b""))


def record_key(session: Session, dataset_id: str) -> bytes:
    """Return the key used for the check values of a dataset's records (`app.rows.records`)."""
    return _vault(session.get_bind().dialect).record_key(dataset_id)


def opening(session: Session) -> AbstractContextManager[None]:
    """Return a context in which this thread reads the key-encryption key once for all values that it opens."""
    vault = _given(session.get_bind().dialect)
    return nullcontext() if vault is None else vault.at_once()


_VAULT = "lethe_vault"


def give(engine: sa.Engine, vault: Sealer) -> None:
    """Attach a vault to an engine. Column types reach it through their dialect; each engine has its own dialect
    object."""
    setattr(engine.dialect, _VAULT, vault)


def _given(dialect: sa.Dialect) -> Sealer | None:
    sealer: Sealer | None = getattr(dialect, _VAULT, None)
    return sealer


def _vault(dialect: sa.Dialect) -> Sealer:
    sealer = _given(dialect)
    if sealer is None:
        raise RuntimeError("This database was opened without a vault.")
    return sealer
