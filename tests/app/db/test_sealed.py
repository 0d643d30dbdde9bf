"""Sealed columns: plain values in Python, and only ciphertext in the database."""

import dataclasses
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from app.db import Database
from app.db.sealed import Particulars, Reference, Sealed, refers_to
from app.keys import KeyEncryptionFile, Keys
from app.vault.pieces import Vault

WRITTEN = Particulars(
    external_id="ticket 4711", metadata={"why": "Jane Roe asked"}, callback_urls=["https://a.example"]
)


class _Table(DeclarativeBase):
    pass


class _Thing(_Table):
    __tablename__ = "things"
    id: Mapped[int] = mapped_column(primary_key=True)
    written: Mapped[Particulars] = mapped_column(Sealed(Particulars), nullable=True)
    name_ref: Mapped[str | None] = mapped_column(Reference)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    key_encryption = KeyEncryptionFile(tmp_path / "keys" / "kek")
    key_encryption.create()
    return Vault(
        tmp_path / "vault", key_encryption, reference=Keys(tmp_path / "keys").create().reference, record_key=str.encode
    )


@pytest.fixture
def database(tmp_path: Path, vault: Vault) -> Database:
    database = Database(f"sqlite:///{tmp_path / 'sealed.db'}", vault=vault)
    _Table.metadata.create_all(database.engine)
    return database


def _stored(session: Session) -> list[tuple[bytes | None, str | None]]:
    return [(row[0], row[1]) for row in session.execute(sa.text("SELECT written, name_ref FROM things"))]


def test_sealed_values_round_trip(database: Database, tmp_path: Path) -> None:
    """A sealed value is read back unchanged, and its plaintext appears nowhere in the database."""
    with database.writing() as session:
        session.add(_Thing(id=1, written=WRITTEN, name_ref="Jane Roe"))
    with database.reading() as session:
        assert session.get_one(_Thing, 1).written == WRITTEN
    database.close()
    content = b"".join(path.read_bytes() for path in tmp_path.glob("sealed.db*"))
    assert b"Jane Roe" not in content
    assert b"ticket 4711" not in content


def test_an_empty_value_is_stored_as_null(database: Database) -> None:
    """An empty value is stored as null without using a key, and is read back as null."""
    with database.writing() as session:
        session.add(_Thing(id=1, written=Particulars(), name_ref=None))
    with database.reading() as session:
        assert _stored(session) == [(None, None)]
        assert session.get_one(_Thing, 1).written == Particulars()


def test_a_changed_value_keeps_its_key(database: Database, vault: Vault) -> None:
    """A changed value is sealed under the same key; without that key, neither the old nor the new value can be read."""
    with database.writing() as session:
        session.add(_Thing(id=1, written=WRITTEN))
    with database.reading() as session:
        [(first, _)] = _stored(session)
    with database.writing() as session:
        thing = session.get_one(_Thing, 1)
        thing.written = dataclasses.replace(thing.written, extension_reason="They are on holiday")
    with database.reading() as session:
        [(second, _)] = _stored(session)
        key = session.get_one(_Thing, 1).written.key
    assert first is not None and second is not None and first != second  # noqa: PT018  three facts about one thing
    vault.destroy([str(key)])
    assert vault.open(first) is None
    with database.reading() as session:
        assert session.get_one(_Thing, 1).written == Particulars()


def test_a_sealed_text_is_found_by_its_reference(database: Database) -> None:
    """A sealed text can be looked up by its reference, and no logged statement contains the text."""
    with database.writing() as session:
        session.add(_Thing(id=1, name_ref="Jane Roe"))
        session.add(_Thing(id=2, name_ref="John Doe"))
    with database.reading() as session:
        assert session.scalars(sa.select(_Thing.id).where(refers_to(session, _Thing.name_ref, "Jane Roe"))).all() == [1]


def test_sealed_columns_need_a_vault(database: Database, tmp_path: Path) -> None:
    """A process that opens the database without the vault can neither read sealed values nor seal new ones."""
    with database.writing() as session:
        session.add(_Thing(id=1, written=WRITTEN))
    blind = Database(f"sqlite:///{tmp_path / 'sealed.db'}")
    with blind.reading() as session:
        assert session.get_one(_Thing, 1).written == Particulars()
    with pytest.raises(sa.exc.StatementError, match="without a vault"), blind.writing() as session:
        session.add(_Thing(id=2, written=WRITTEN))
    blind.close()
