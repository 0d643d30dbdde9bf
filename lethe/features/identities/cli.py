"""Commands for identity maps: load a CSV file or the result of an SQL query."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.derived import VERBS, add_group
from lethe.cli.gateway import Key, Url, connect, show
from lethe.contract.problems import FieldError, InputInvalid
from lethe.features.identities.client import csv_rows

VERBS |= {"identities.load": "link", "identities.load_rows": "load"}
_app = add_group("identities", "identities", "Which identifiers belong to one person.")
_READ_ONLY = {
    "postgresql": "SET TRANSACTION READ ONLY",
    "mysql": "SET TRANSACTION READ ONLY",
    "mariadb": "SET TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
}


@_app.command("load")
def load(
    file: Annotated[Path | None, typer.Argument(help="CSV file whose header names kinds of identifiers.")] = None,
    sql: Annotated[str | None, typer.Option(help="SQLAlchemy URL of a database to read instead of a file.")] = None,
    query: Annotated[str | None, typer.Option(help="SELECT whose columns are named after identifier kinds.")] = None,
    confirm_joins: Annotated[bool, typer.Option("--confirm-joins", help="Merge people who were separate.")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Load an identity map from a CSV file, or from an SQL query run in a read-only transaction."""
    if (file is None) == (sql is None) or (sql is None) != (query is None):
        raise InputInvalid("Give either a file, or --sql and --query.", [FieldError("file", "expected one source")])
    with connect(url, key) as client:
        if file is not None:
            totals = client.identities.load_rows(csv_rows(file), confirm_joins=confirm_joins, first=2, place="line")
        else:
            totals = client.identities.load_rows(sql_rows(sql or "", query or ""), confirm_joins=confirm_joins)
    show(totals)


def sql_rows(url: str, query: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a query, run in a read-only transaction. Raises `InputInvalid`, which omits the URL, the query
    and the database's error message, because they may contain secrets or rows."""
    try:
        import sqlalchemy as sa
    except ImportError:
        raise InputInvalid("Install lethe-sdk[sql] to load identities from a database.") from None
    try:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        begin = _READ_ONLY.get(engine.dialect.name)
        if begin is None:
            expected = "expected a database of " + ", ".join(sorted(_READ_ONLY))
            raise InputInvalid("The database cannot be read safely.", [FieldError("--sql", expected)])
        with engine.connect() as connection:
            connection.exec_driver_sql(begin)
            for row in connection.execution_options(stream_results=True).execute(sa.text(query)).mappings():
                yield dict(row)
    except (sa.exc.SQLAlchemyError, ImportError) as error:
        fault = FieldError("--sql", f"failed with {type(error).__name__}")
        raise InputInvalid("The statement cannot be run on this database.", [fault]) from None
