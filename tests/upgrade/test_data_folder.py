"""A data folder of revision 0001, started with what is here now."""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lethe import Client
from lethe.errors import CertificateInvalid, NotFound

LETHE = str(Path(sys.executable).with_name("lethe"))
FIXTURE = Path(__file__).with_name("data_folder_0001.tar.xz")


pytestmark = pytest.mark.service


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


def test_everybody_and_everything_is_still_there_and_goes_on(data_folder: Path) -> None:
    """Ids and statuses stay, who was forgotten stays so, and who waits is forgotten, with a certificate."""
    was = ids(data_folder)
    with up(data_folder) as lethe:
        held = {dataset.id: dataset for dataset in lethe.datasets.list()}
        assert {was["features"], was["evaluation"], was["table"]} == held.keys()
        models = {model.id for model in lethe.models.list()}
        assert {was["features_model"], was["table_model"]} <= models
        assert lethe.deletion_requests.get(was["forgotten"]).status == "completed"
        told = [event.kind for event in lethe.deletion_requests.events(was["forgotten"])]
        assert told == ["received", "accepted", "running", "rows_erased", "completed"]
        account = lethe.accounting.deletion_request(was["forgotten"])
        assert [(statement.signed, bool(statement.today)) for statement in account.models] == [([], True)]
        kept = lethe.deletion_requests.proof(was["forgotten"])
        assert kept.joint
        with pytest.raises(CertificateInvalid, match="only releases that signed it verify"):
            lethe.certificates.verify(kept.certificates[0].jws)
        assert lethe.deletion_requests.get(was["nothing_held"]).outcome == "nothing_held"
        with pytest.raises(NotFound):
            lethe.datasets.subject(was["features"], "person-7")

        assert lethe.deletion_requests.get(was["in_review"]).status == "in_review"
        lethe.deletion_requests.approve(was["in_review"])
        for name in ("accepted", "in_review"):
            done: Any = lethe.deletion_requests.wait(was[name])
            assert (done.status, done.outcome) == ("completed", "forgotten")
            assert [model.certificate_id for model in done.models if model.certificate_id]
            for signed in lethe.deletion_requests.proof(was[name]).certificates:
                assert lethe.certificates.verify(signed.jws).valid
        assert lethe.datasets.subject(was["features"], "newcomer-0").num_records == 2


@pytest.mark.soak
def test_an_upgrade_can_be_repeated(data_folder: Path) -> None:
    """A folder that was upgraded starts again as it is."""
    was = ids(data_folder)
    for _ in range(2):
        with up(data_folder) as lethe:
            assert lethe.models.get(was["features_model"]).live_version


@pytest.mark.soak
def test_models_learn_again(data_folder: Path) -> None:
    """Models that were live learn again, at once and nobody having asked; their ledgers verify, and say how many
    entries of before were not recomputed; what was published before still counts."""
    was = ids(data_folder)
    with up(data_folder) as lethe:
        of_before = {was["features_model"]: 2, was["table_model"]: 1}
        for model_id, entries in of_before.items():
            deadline = time.monotonic() + 60
            while (model := lethe.models.get(model_id)).live_version == entries and time.monotonic() < deadline:
                time.sleep(0.1)
            assert model.live_version == entries + 1
            assert (model.mechanism.batch_size, model.mechanism.num_batches) == (model.mechanism.num_slots, 1)
            verdict = lethe.accounting.verify_ledger(model_id)
            assert (verdict.valid, verdict.entries, verdict.not_recomputed) == (True, 1, entries)
            assert lethe.accounting.model(model_id).releases == entries + 1
        whole = lethe.ledger.verify()
        assert (whole.valid, whole.not_recomputed, whole.signed) == (True, 3, whole.links)
