"""A database role that can read only what the accounting service reads."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient
from psycopg import sql
from pydantic import SecretStr

from app import accounting_main, installations
from app.config import Settings
from app.db import migrate
from app.db.tables import Table
from lethe.contract.problems import InputInvalid
from tests.postgres.server import Server
from tests.tables import each

pytestmark = pytest.mark.postgres

Make = Callable[..., dict[str, Any]]
ROLE = "an auditor's"


@pytest.fixture
def role(postgres: Server, settings: Settings) -> Iterator[str]:
    """Create a database role that can read the test's installation."""
    name = sql.Identifier(ROLE)
    postgres.do(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    installations.set_up(settings, reader_role=ROLE)
    yield ROLE
    assert settings.database_url
    database = settings.database_url.get_secret_value().rsplit("/", 1)[1]
    postgres.do(sql.SQL("DROP OWNED BY {}").format(name), database=database)
    postgres.do(sql.SQL("DROP ROLE {}").format(name))


@pytest.fixture
def url(settings: Settings, role: str) -> str:
    """Return the URL of the test's database with the reader role as the user."""
    assert settings.database_url
    return settings.database_url.get_secret_value().replace("postgres@", "an%20auditor's@")


def test_the_reader_role_is_sufficient(
    settings: Settings,
    url: str,
    admin_key: str,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> None:
    """With the reader role, the accounting service gives the same responses as the gateway, even about pending
    requests."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    done = forget("p3")
    work()
    waiting = forget("p4")
    certificate = gateway.get(f"/v1/deletion-requests/{done['id']}/certificate").json()["certificates"][0]
    as_reader = settings.model_copy(update={"database_url": SecretStr(url)})
    headers = {"Authorization": f"Bearer {admin_key}"}
    with TestClient(accounting_main.create_app(as_reader), headers=headers) as alone:
        for path in (
            f"/v1/accounting/models/{model['id']}",
            f"/v1/accounting/models/{model['id']}/trajectory",
            f"/v1/accounting/datasets/{model['dataset_id']}",
            f"/v1/accounting/models/{model['id']}/ledger",
            f"/v1/accounting/deletion-requests/{done['id']}",
            f"/v1/accounting/deletion-requests/{waiting['id']}",
            f"/v1/certificates/{certificate['id']}",
            "/v1/accounting/bounds",
        ):
            answer = alone.get(path)
            assert answer.status_code == 200, path
            assert answer.json() == gateway.get(path).json()
        asked = {"model_id": model["id"], "num_records": 2}
        answers = [client.post("/v1/accounting/preview", json=asked).json() for client in (alone, gateway)]
        assert answers[0] == answers[1]
        assert alone.get("/readyz").json()["status"] == "ready"


@each("table", [*Table.metadata.tables, "alembic_version"])
def test_the_reader_role_cannot_write(url: str, table: str) -> None:
    """The server refuses every attempt by the reader role to change a table, whatever options the connection sets."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        for statement in ("DELETE FROM {}", "INSERT INTO {} DEFAULT VALUES", "TRUNCATE {}", "DROP TABLE {}"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql.SQL(statement).format(sql.Identifier(table)))
        columns = [column.name for column in Table.metadata.tables[table].columns] if table[:7] != "alembic" else []
        for column in columns or ["version_num"]:
            update = sql.SQL("UPDATE {} SET {} = NULL").format(sql.Identifier(table), sql.Identifier(column))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(update)


def test_the_reader_role_reads_only_what_it_needs(url: str) -> None:
    """The reader role can neither create anything nor read tables that the accounting service does not need, such as
    the stored responses."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in ("CREATE TABLE more (id int)", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
        unread = {*Table.metadata.tables} - {*migrate.TABLES}
        assert unread == {
            *("agents", "audit_entries", "dashboard_sessions", "idempotent_answers"),
            *("drop_files", "drop_hashes", "drop_lines", "identities", "identity_kinds", "systems", "system_tasks"),
            "search_reports",
            *("attested_artefacts", "attested_manifests", "attested_trainers", "attested_waits"),
            *("dp_models", "dp_ledgers", "dp_requests"),
            *("training_tables", "training_table_blocks", "trainers", "trainings", "training_artefacts"),
            *("retired_training_keys", "canary_rounds"),
            *(
                "identity_issuers",
                "leaving_counts",
                "network_pieces",
                "networks",
                "rehearsals",
                "rehearsed_rows",
                "request_attachments",
                "request_events",
                "request_notes",
                "suppressions",
                "used_statements",
            ),
            *("users", "webhook_deliveries"),
        }
        for table in unread:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql.SQL("SELECT 1 FROM {}").format(sql.Identifier(table)))


def test_granting_again_revokes_other_privileges(postgres: Server, settings: Settings, role: str, url: str) -> None:
    """Granting access to the role again revokes all other privileges that it has been given in the meantime."""
    assert settings.database_url
    database = settings.database_url.get_secret_value().rsplit("/", 1)[1]
    grants = "GRANT ALL ON ALL TABLES IN SCHEMA public TO {}", "GRANT CREATE ON SCHEMA public TO {}"
    for statement in grants:
        postgres.do(sql.SQL(statement).format(sql.Identifier(role)), database=database)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM request_events")
        installations.set_up(settings, reader_role=role)
        for statement in ("DELETE FROM request_events", "CREATE TABLE more (id int)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql.SQL(statement))


def test_granting_to_a_missing_role_is_refused(settings: Settings) -> None:
    """Granting access to a role that does not exist is refused, and the error quotes the statement that creates the
    role."""
    with pytest.raises(InputInvalid, match="CREATE ROLE"):
        installations.set_up(settings, reader_role="nobody_at_all")


def test_a_reader_role_on_sqlite_is_refused(set_up_once: Any) -> None:
    """On SQLite a reader role is refused, and the error explains that the accounting service opens the file
    read-only."""
    with pytest.raises(InputInvalid, match="read-only"):
        installations.set_up(Settings(data_dir=set_up_once), reader_role="anybody")
