"""Retraining without a person: from the request to the artefact without them, and the bundle that proves it."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app import signing
from app.features.trainers.tables import Artefact, TableBlock
from app.installations import Installation
from lethe.features.systems import bundle
from tests.features.trainers.conftest import PEOPLE

New = Callable[..., dict[str, Any]]


def test_person_is_absent_from_table_and_artefacts(
    gateway: TestClient,
    installation: Installation,
    new_table: New,
    new_trainer: New,
    train: Callable[[], int],
    names: Callable[[str], set[str]],
    forget: New,
    get: Callable[[str], Any],
) -> None:
    """A request erases the person's rows from the table, retrains the trainer without them and then completes. The
    bundle proves the request's grade, and no block or artefact that contained the person can be decrypted."""
    table = new_table()
    assert (table["num_rows"], [column["name"] for column in table["columns"]]) == (2 * PEOPLE, ["name", "age"])
    trainer = new_trainer(table["id"], metrics=["rows"], metric="rows", min_metric=1)
    assert train() == 1
    assert "np3" in names(trainer["id"])
    with installation.database.reading() as session:
        before = [block.content for block in session.query(TableBlock)]
        sealed = [artefact.content for artefact in session.query(Artefact)]
    request = forget("p3")
    assert get(f"/deletion-requests/{request['id']}/systems")["waits_for"] == ["Rows in Lethe", "counter"]
    assert train() == 1
    assert names(trainer["id"]) == {f"np{i}" for i in range(PEOPLE)} - {"np3"}
    done = get(f"/deletion-requests/{request['id']}")
    assert (done["status"], done["outcome"]) == ("completed", "forgotten")
    assert get(f"/training-tables/{table['id']}")["num_rows"] == 2 * PEOPLE - 2
    assert [installation.vault.open(content) for content in [*before, *sealed]] == [None] * (len(before) + len(sealed))
    stated = get(f"/deletion-requests/{request['id']}/bundle")
    [line] = [line for line in stated["statement"]["lines"] if line["system"]["kind"] == "trainer"]
    assert (line["grade"], line["numbers"]) == ("retrained_hermetic", None)
    assert set(line["evidence"]["artefacts"]) == {"names.txt", "columns.txt"}
    assert any("equal in law" in limit for limit in line["limits"])
    verified = bundle.verify(stated["jws"], signing.public_keys(installation.keys))
    assert verified.statement == stated["statement"]
