import pytest
from fastapi.testclient import TestClient

from app.access import service as access
from app.db import Actor
from app.installations import Installation
from lethe.contract.problems import InputInvalid
from tests.tables import each


@each(
    "path",
    [
        "/datasets/ds_%00",
        "/models/mdl_%00",
        "/models/mdl_%00/versions/1",
        "/deletion-requests/dr_%00",
        "/deletion-requests/dr_%00/certificate",
        "/certificates/crt_%00",
        "/runs?model_id=%00",
        "/accounting/models/mdl_%00",
        "/accounting/deletion-requests/dr_%00",
    ],
)
def test_an_id_with_nul_is_malformed(gateway: TestClient, path: str) -> None:
    """An id with a NUL character, which neither PostgreSQL nor SQLite can store as text, is refused as malformed
    everywhere."""
    answer = gateway.get(f"/v1{path}")
    assert (answer.status_code, answer.json()["code"]) == (422, "input_invalid")


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_unstorable_text_is_refused(installation: Installation, by: Actor, text: str) -> None:
    """Both databases refuse NUL characters and unpaired surrogates, and the error does not quote the text."""
    with pytest.raises(InputInvalid) as caught, installation.database.writing(by=by) as session:
        access.add_key(session, name=text, key="k", scopes=[])
    assert text not in str(caught.value)
