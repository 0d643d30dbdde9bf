"""A data folder of revision 0001, started with what is here now."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lethe import Client
from lethe.errors import NotFound

LETHE = str(Path(sys.executable).with_name("lethe"))
FIXTURE = Path(__file__).with_name("data_folder_0001.tar.xz")


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


@contextmanager
def up(data_folder: Path) -> Iterator[Client]:
    """`lethe up` over this folder, and a client with its admin key."""
    environment = os.environ | {"LETHE_DATA_DIR": str(data_folder), "LETHE_PORT": "0"}
    with subprocess.Popen([LETHE, "up"], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[3]
        try:
            with Client(address, (data_folder / "keys" / "admin.key").read_text().strip()) as client:
                yield client
        finally:
            process.terminate()
        assert process.wait(120) == 0


def ids(data_folder: Path) -> dict[str, str]:
    named: dict[str, str] = json.loads((data_folder / "ids.json").read_text())
    return named


@pytest.mark.slow
def test_everybody_and_everything_is_still_there_and_goes_on(data_folder: Path) -> None:
    """Ids and statuses stay, who was forgotten stays so, and who waits is forgotten, with a certificate."""
    was = ids(data_folder)
    with up(data_folder) as lethe:
        held = {dataset.id: dataset for dataset in lethe.datasets.list()}
        assert {was["features"], was["evaluation"], was["table"]} == held.keys()
        models = {model.id for model in lethe.models.list()}
        assert {was["features_model"], was["table_model"]} <= models
        assert lethe.deletion_requests.get(was["forgotten"]).status == "completed"
        account = lethe.accounting.deletion_request(was["forgotten"])
        assert all(statement.signed and statement.today for statement in account.models)
        assert account.models
        assert lethe.deletion_requests.proof(was["forgotten"]).joint
        assert lethe.deletion_requests.get(was["nothing_held"]).outcome == "nothing_held"
        with pytest.raises(NotFound):
            lethe.datasets.subject(was["features"], "person-7")

        assert lethe.deletion_requests.get(was["in_review"]).status == "in_review"
        lethe.deletion_requests.approve(was["in_review"])
        for name in ("accepted", "in_review"):
            done: Any = lethe.deletion_requests.wait(was[name])
            assert (done.status, done.outcome) == ("completed", "forgotten")
            assert [model.certificate_id for model in done.models if model.certificate_id]
        assert lethe.datasets.subject(was["features"], "newcomer-0").num_records == 2


@pytest.mark.slow
def test_an_upgrade_can_be_repeated(data_folder: Path) -> None:
    """A folder that was upgraded starts again as it is."""
    was = ids(data_folder)
    for _ in range(2):
        with up(data_folder) as lethe:
            assert lethe.models.get(was["features_model"]).live_version
