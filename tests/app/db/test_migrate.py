import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError

import migrations
from app.access import service as access
from app.db import Database, migrate, now
from app.db.tables import AuditEntry, Checkpoint, Dataset, LedgerEntry, LedgerLink, Model, Table
from app.errors import DatabaseUnreadable
from app.installations import Installation
from tests.faults.processes import LETHE, environment_of


@pytest.fixture
def database(new_url: str) -> Iterator[Database]:
    """Create an empty database."""
    database = Database(new_url)
    yield database
    database.close()


def tables(database: Database) -> set[str]:
    return set(sa.inspect(database.engine).get_table_names()) - {"alembic_version"}


@pytest.mark.slow
def test_migrations_run_up_down_and_up(database: Database) -> None:
    """Migrations create the whole schema, remove it completely and create it again. Only the newest revision counts as
    current."""
    assert not migrate.is_current(database.engine)
    for _ in range(2):
        migrate.upgrade(database.engine)
        assert migrate.is_current(database.engine)
        assert tables(database) == set(Table.metadata.tables)
        migrate.downgrade(database.engine)
        assert not migrate.is_current(database.engine)
        assert tables(database) == set()


def test_upgrading_a_current_database_is_a_no_op(installation: Installation) -> None:
    """Migrating a current database changes nothing."""
    with installation.database.reading() as session:
        before = session.execute(sa.text("SELECT * FROM api_keys")).all()
    migrate.upgrade(installation.database.engine)
    with installation.database.reading() as session:
        assert session.execute(sa.text("SELECT * FROM api_keys")).all() == before


@pytest.mark.parametrize("revision", ["0001", "0024", "9999"])
def test_a_database_of_another_version_is_refused(database: Database, revision: str) -> None:
    """Checks, upgrades and downgrades refuse a database with an unknown revision and leave it unchanged."""
    with database.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})
    for call in (migrate.check, migrate.upgrade, migrate.downgrade):
        with pytest.raises(DatabaseUnreadable, match=rf"another version of Lethe \(schema {revision}\).*not support"):
            call(database.engine)
    assert tables(database) == set()
    with database.engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == revision


def test_revisions_match_alembic() -> None:
    """The revisions and heads that are read without Alembic are the same as those that Alembic reports."""
    scripts = ScriptDirectory.from_config(migrate._config())
    assert migrate._revisions() == {script.revision for script in scripts.walk_revisions()}
    assert migrate.heads() == sorted(scripts.get_heads())


def test_revisions_declare_consistent_compatibility() -> None:
    """The revisions of a branch are numbered without gaps, and no revision declares compatibility with code that an
    earlier revision has made incompatible."""
    scripts: dict[str, list[tuple[int, int]]] = {}
    for script in ScriptDirectory.from_config(migrate._config()).walk_revisions():
        branch, number, oldest = migrations.parsed(script.revision)
        assert oldest <= number
        assert script.branch_labels == {branch}
        scripts.setdefault(branch, []).append((number, oldest))
    for revisions in scripts.values():
        numbers, oldest_of_each = zip(*sorted(revisions), strict=True)
        assert numbers == tuple(range(1, len(numbers) + 1))
        assert list(oldest_of_each) == sorted(oldest_of_each)


@pytest.mark.parametrize(
    ("revisions", "expected", "usable"),
    [
        (["core_0002", "desk_0001"], ["core_0002", "desk_0001"], True),
        (["core_0003_since_0001", "desk_0001"], ["core_0002", "desk_0001"], True),
        (["core_0003_since_0003", "desk_0001"], ["core_0002", "desk_0001"], False),
        (["core_0003", "desk_0001"], ["core_0002", "desk_0001"], False),
        (["core_0001", "desk_0001"], ["core_0002", "desk_0001"], False),
        (["core_0001_since_0000"], ["core_0002_since_0001"], False),
        (["core_0002"], ["core_0002", "desk_0001"], False),
        (["core_0002", "desk_0001"], ["core_0002"], False),
        (["core_0002", "desk_0001_since_0000"], ["core_0002"], True),
        (["core_0002", "9999"], ["core_0002"], False),
        ([], ["core_0002"], False),
    ],
)
def test_a_schema_is_usable_by_compatible_code(revisions: list[str], expected: list[str], usable: bool) -> None:
    """A schema is usable only if its revisions are the expected ones, or newer ones that declare compatibility with the
    expected ones."""
    assert migrations.are_usable(revisions, expected=expected) is usable


def test_tables_match_the_migrated_schema(database: Database) -> None:
    """The schema in `app.db.tables` is identical to the schema that the migrations create."""
    migrate.upgrade(database.engine)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Table.metadata) == []


@pytest.mark.soak
@pytest.mark.service
def test_concurrent_migrations_succeed(database: Database, new_url: str, tmp_path: Path) -> None:
    """If several processes migrate a new database at the same moment, all succeed and the database is then up to
    date."""
    environment = environment_of(tmp_path / "data", database_url=new_url)
    migrating = [subprocess.Popen([LETHE, "migrate"], env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate(timeout=240)[0] for process in migrating]
    assert [process.returncode for process in migrating] == [0, 0, 0]
    assert said == [b"The database has this release's schema.\n"] * 3
    assert migrate.is_current(database.engine)
    with database.reading() as session:
        assert session.scalar(sa.text("SELECT count(*) FROM api_keys")) == 1


@pytest.mark.parametrize("table", [AuditEntry, Checkpoint, LedgerEntry, LedgerLink])
def test_chains_are_append_only(database: Database, table: type[Table]) -> None:
    """The database itself rejects changes to and deletions of audit entries, ledger entries, links and checkpoints."""
    migrate.upgrade(database.engine)
    with database.writing() as session:
        at, tenant_id = now(session), access.ensure_default_tenant(session).tenant_id
        shape = {"num_features": 1, "num_slots": 1, "digest": "", "revision": 0, "classes": [], "schema": None}
        session.add(Dataset(id="ds_1", tenant_id=tenant_id, name="", created_at=at, **shape))
        session.flush()
        target = {"dataset_id": "ds_1", "epsilon": 1.0, "delta": 0.1, "mechanism": {}}
        session.add(Model(id="mdl_1", tenant_id=tenant_id, name="", status="live", created_at=at, **target))
        session.flush()
        place = {"tenant_id": tenant_id, "sequence": 9, "hash": "kept"}
        done = {"actor": "", "action": "", "object_id": "", "detail": {}}
        session.add(AuditEntry(at=at, previous_hash="", **done, **place))
        session.add(Checkpoint(log="audit", jws="", signed_at=at, **place))
        session.add(LedgerEntry(model_id="mdl_1", sequence=9, body="{}", previous_hash="", hash="kept"))
        session.add(LedgerLink(body="{}", previous_hash="", **place))
    for change in (f"UPDATE {table.__tablename__} SET hash = ''", f"DELETE FROM {table.__tablename__}"):
        with pytest.raises(DBAPIError, match="append-only"), database.writing() as session:
            session.execute(sa.text(change))
    with database.reading() as session:
        assert "kept" in session.scalars(sa.select(sa.column("hash")).select_from(table.__table__)).all()
