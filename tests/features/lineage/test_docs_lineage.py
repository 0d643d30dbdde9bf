"""The model server of docs/lineage.md does what the page states."""

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.config import Settings
from app.db.tables import DeletionRequest
from app.installations import Installation
from lethe import Client
from lethe.errors import NotFound
from tests.faults import processes

PAGE = Path(__file__).parents[3] / "docs" / "lineage.md"
Look = Callable[[Client, str, Any], Any]


@pytest.fixture
def look() -> Look:
    [example] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(example, names)
    found: Look = names["look"]
    return found


def test_the_documented_server_serves_only_permitted_versions(
    settings: Settings,
    installation: Installation,
    admin_key: str,
    look: Look,
    people: Path,
    work: Callable[[], int],
) -> None:
    """The documented server serves nothing until the first version is published, downloads each version only once and
    stops serving when a deadline passes. If the gateway is unreachable, it continues until its permission expires."""
    with processes.gateway(settings) as (_, address), Client(address, admin_key, retry_seconds=0) as client:
        model = client.models.create(
            name="m", dataset_id=client.datasets.upload(people, classes=["0", "1"]).id, l2=0.05
        )
        assert look(client, model.id, None) is None
        work()
        first = look(client, model.id, None)
        assert first[0] == client.models.weights(model.id, 1)
        assert look(client, model.id, first)[0] is first[0]
        request = client.deletion_requests.create(subject_id="p1")
        with installation.database.writing() as session:
            session.execute(sa.update(DeletionRequest).values(deadline=request.created_at))
        assert look(client, model.id, first) is None
        work()
        second = look(client, model.id, first)
        assert second[1] == client.models.version(model.id, 2).weights_sha256 != first[1]
        with pytest.raises(NotFound):
            client.models.serving(model.id, version=3)
    with Client(address, admin_key, retry_seconds=0) as nobody:
        assert look(nobody, model.id, second) == second
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
        assert look(nobody, model.id, (*second[:2], past)) is None
        assert look(nobody, model.id, None) is None
