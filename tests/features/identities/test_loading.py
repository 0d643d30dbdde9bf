"""Loading an identity map by the SDK and the command line, from CSV files and SQL statements."""

import sqlite3
from pathlib import Path

import pytest

from lethe import Client
from lethe.contract.problems import InputInvalid
from lethe.features.identities.cli import sql_rows
from lethe.features.identities.client import csv_rows, identifiers_of
from lethe.features.identities.contract import PeopleJoined

CSV = "customer_id,email,phone\n4711,ada@example.org,+49 30 901820\n4712,,+49 30 901821\n4713,,\n"


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Return the URL of a database of customers."""
    path = tmp_path / "customers.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customers (id TEXT, mail TEXT)")
        connection.executemany(
            "INSERT INTO customers VALUES (?, ?)", [(f"c{n}", f"p{n}@example.org") for n in range(5)]
        )
    return f"sqlite:///{path}"


def test_loading_a_csv_file_is_idempotent(client: Client, tmp_path: Path) -> None:
    """Rows with only one identifier are counted and skipped. Loading the same file again adds nothing."""
    path = tmp_path / "map.csv"
    path.write_text(CSV)
    first = client.identities.load_rows(csv_rows(path), first=2, place="line")
    assert (first.num_links, first.num_new, first.num_single) == (2, 5, 1)
    assert client.identities.load_rows(csv_rows(path)).num_new == 0
    assert client.identities.get().num_people == 2


@pytest.mark.parametrize(
    ("content", "error", "place"),
    [
        (CSV + "4714,nobody,\n", InputInvalid, "line 5"),
        (CSV + "4714,ada@example.org,\n", PeopleJoined, "line 2"),
        (CSV + "4714,a@example.org,,more\n", InputInvalid, "line 5"),
    ],
)
def test_errors_name_the_line_of_the_file(
    client: Client, tmp_path: Path, content: str, error: type[Exception], place: str
) -> None:
    """The error for an invalid file names the line but no identifier, and no link is loaded."""
    path = tmp_path / "map.csv"
    path.write_text(content)
    with pytest.raises(error) as raised:
        client.identities.load_rows(csv_rows(path), first=2, place="line")
    assert raised.value.errors[0].path == place  # type: ignore[attr-defined]
    assert "@" not in str(raised.value)
    assert client.identities.get().num_people == 0


def test_a_sql_statement_cannot_write(database: str) -> None:
    """The columns of a SQL statement name the kinds of identifiers. A statement that writes fails without being quoted
    and leaves the database unchanged."""
    rows = list(sql_rows(database, "SELECT id AS customer_id, mail AS email FROM customers ORDER BY id"))
    assert rows[1] == {"customer_id": "c1", "email": "p1@example.org"}
    for statement in ("DELETE FROM customers", "SELECT nothing FROM nowhere"):
        with pytest.raises(InputInvalid) as raised:
            list(sql_rows(database, statement))
        assert statement not in raised.value.line
        assert "customers" not in raised.value.line
    assert len(list(sql_rows(database, "SELECT * FROM customers"))) == 5
    with pytest.raises(InputInvalid):
        list(sql_rows("mssql+pyodbc://u:secret@host/db", "SELECT 1"))


def test_columns_can_contain_hashes() -> None:
    """A column whose name ends in _sha256 contains hashes of identifiers of its kind. Empty cells are skipped."""
    assert identifiers_of({"email_sha256": "a" * 64, "customer_id": 7, "phone": None, "device": " "}) == [
        {"kind": "email", "sha256": "a" * 64},
        {"kind": "customer_id", "id": "7"},
    ]
