"""Tombstones record each request once, and are refused when they cannot be trusted."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import Dataset, Run
from app.errors import TombstonesDamaged
from app.installations import Installation
from app.journal import tombstones
from app.keys import Keys, KeyUnreadable
from app.vault.store import locked
from lethe.contract.problems import DatabasePutBack
from tests.faults.processes import wait_until
from tests.stored import rows_of, slots_of

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def file(installation: Installation) -> Path:
    return installation.settings.resolved_tombstones()


def statuses(installation: Installation) -> list[tuple[str, str]]:
    return [
        (line.request.id, line.request.status)
        for line in tombstones.journal(installation).lines()
        if line.request is not None
    ]


def test_each_event_is_recorded_once(installation: Installation, new_dataset: Make, forget: Make) -> None:
    """Recording acceptances repeatedly writes only one line per request, which states the deadline but does not
    identify the person."""
    new_dataset()
    asked = forget("p1", regulation="ccpa", metadata={"note": "unmistakable"}, external_id="case-77")
    for _ in range(3):
        tombstones.record(installation)
    begun, line = tombstones.journal(installation).lines()
    assert begun.kind == "begun"
    assert line.request
    assert line.request.id == asked["id"]
    assert line.request.due_at == datetime.datetime.fromisoformat(asked["due_at"])
    written = installation.settings.resolved_tombstones().read_text()
    assert "p1" not in written.replace(line.request.subject_ref, "")
    assert "unmistakable" not in written
    assert "case-77" not in written


def test_an_older_copy_gets_the_missing_retirements(
    installation: Installation,
    file: Path,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    work: Callable[[], int],
) -> None:
    """However often the retirement of a model or dataset is recorded, only one line is written for it. If the tombstone
    file is replaced with an older copy, the missing retirements are added from the database, so that no restore brings
    back anything that was retired."""
    dataset = new_dataset()
    first, second = (new_model(dataset["id"]) for _ in range(2))
    work()
    gateway.delete(f"/v1/models/{first['id']}").raise_for_status()
    copy = file.read_bytes()
    gateway.delete(f"/v1/models/{second['id']}").raise_for_status()
    gateway.delete(f"/v1/datasets/{dataset['id']}").raise_for_status()

    def retired() -> list[str | None]:
        return [line.retired for line in tombstones.journal(installation).lines() if line.kind == "retired"]

    everything = [first["id"], second["id"], dataset["id"]]
    for _ in range(2):
        tombstones.record(installation)
        assert retired() == everything
    with locked(file.parent):  # the gateway records too
        file.write_bytes(copy)
        assert retired() == everything[:1]
    tombstones.record(installation)
    assert retired() == everything


def test_a_backlog_is_written_in_portions(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, new_dataset: Make, forget: Make
) -> None:
    """A backlog with more lines than fit in a single write is written in several portions, completely and in order."""
    monkeypatch.setattr(tombstones, "_AT_ONCE", 2)
    new_dataset()
    asked = [forget(f"p{person}")["id"] for person in range(5)]
    tombstones.record(installation)
    assert statuses(installation) == [(request_id, "accepted") for request_id in asked]


def test_withdrawals_reviews_and_extensions_are_recorded(
    installation: Installation, gateway: TestClient, new_dataset: Make, forget: Make
) -> None:
    """A withdrawal, a review and an extension are each recorded in a separate line, which includes the state of the
    request's clock."""
    new_dataset()
    asked = forget("p1")
    tombstones.record(installation)
    extended = gateway.post(f"/v1/deletion-requests/{asked['id']}/extend", json={"reason": "many requests"})
    tombstones.record(installation)
    assert gateway.post(f"/v1/deletion-requests/{asked['id']}/cancel").status_code == 200
    tombstones.record(installation)
    assert statuses(installation) == [(asked["id"], "accepted"), (asked["id"], "accepted"), (asked["id"], "cancelled")]
    _, _, line, _ = tombstones.journal(installation).lines()
    assert line.request
    assert line.request.deadline == datetime.datetime.fromisoformat(extended.json()["extended_due_at"])


def test_a_worker_records_before_it_erases(
    installation: Installation, new_dataset: Make, forget: Make, work: Callable[[], int]
) -> None:
    """A run erases no rows before the request is recorded; if recording fails, the run fails too."""
    dataset = new_dataset()
    slots = slots_of(installation, dataset["id"], "p1")
    forget("p1")
    file = installation.settings.resolved_tombstones()
    with locked(file.parent):  # the gateway records too
        file.unlink(missing_ok=True)
        file.mkdir()
    assert work() == 1
    assert rows_of(installation, dataset["id"]).features[slots].any()
    with installation.database.writing() as session:
        assert session.scalars(sa.select(Run.error_code)).one() == "IsADirectoryError"
        session.get_one(Dataset, dataset["id"]).not_before = None
    file.rmdir()
    assert work() == 1
    assert not rows_of(installation, dataset["id"]).features[slots].any()
    assert len(statuses(installation)) >= 1


def test_the_gateway_records_without_a_worker(
    installation: Installation, gateway: TestClient, new_dataset: Make, forget: Make
) -> None:
    """An accepted request is recorded in the tombstone file within seconds, even if no worker runs."""
    new_dataset()
    asked = forget("p1")
    wait_until(lambda: (asked["id"], "accepted") in statuses(installation))


def test_a_torn_last_line_is_rewritten(installation: Installation, file: Path, new_dataset: Make, forget: Make) -> None:
    """A line that was cut off by a crash is removed and written again."""
    new_dataset()
    forget("p1")
    wait_until(lambda: tombstones.record(installation) or statuses(installation))
    with locked(file.parent):  # the gateway records too
        whole = file.read_bytes()
        file.write_bytes(whole[:-7])
        assert statuses(installation) == []
    tombstones.record(installation)
    assert file.read_bytes() == whole


@pytest.mark.parametrize("damage", ["changed", "cut out", "swapped", "doubled"])
def test_changed_lines_are_detected(
    installation: Installation, file: Path, new_dataset: Make, forget: Make, damage: str
) -> None:
    """Reading the tombstone file detects changed, missing and moved lines."""
    new_dataset()
    for number in range(3):
        forget(f"p{number}")
    tombstones.record(installation)
    first, second, third, fourth = file.read_bytes().splitlines(keepends=True)
    changed = {
        "changed": [first, second.replace(b"accepted", b"rejected"), third, fourth],
        "cut out": [first, third, fourth],
        "swapped": [first, third, second, fourth],
        "doubled": [first, second, second, third, fourth],
    }
    with locked(file.parent):  # the gateway would start a new file if it found an empty one
        file.write_bytes(b"".join(changed[damage]))
    with pytest.raises(TombstonesDamaged):
        list(tombstones.journal(installation).lines())


def test_a_damaged_last_line_stops_the_writer(
    installation: Installation, file: Path, new_dataset: Make, forget: Make
) -> None:
    """Recording appends nothing to a file whose last line was altered, and a file cannot be read with a different
    key."""
    new_dataset()
    forget("p1")
    tombstones.record(installation)
    with locked(file.parent):  # the gateway records too
        whole = file.read_bytes()
        # Which line is last depends on whether a head was signed in the meantime.
        earlier, end, last = whole[:-1].rpartition(b"\n")
        file.write_bytes(earlier + end + last.replace(b'"number":', b'"numbed":') + b"\n")
        assert file.read_bytes() != whole
    with pytest.raises(TombstonesDamaged):
        tombstones.record(installation)
    with locked(file.parent):
        file.write_bytes(whole)
    with pytest.raises(TombstonesDamaged):
        list(tombstones.Journal(file, Keys(file.parent / "other").create()).lines())


def test_a_missing_or_changed_key_is_reported(installation: Installation) -> None:
    """A missing or changed key is reported as such and not as damage to the tombstones."""
    tombstones.record(installation)
    assert tombstones.kept_heads(installation.settings) == []
    (installation.settings.data_dir / "keys" / "subject.key").write_text("none")
    with pytest.raises(KeyUnreadable, match="put the right key back"):
        tombstones.kept_heads(installation.settings)


def test_a_restored_database_is_noticed(
    installation: Installation, file: Path, new_dataset: Make, forget: Make, work: Callable[[], int]
) -> None:
    """If the tombstone file has lines that the database lacks, recording raises DatabasePutBack and every run fails."""
    new_dataset()
    forget("p1")
    tombstones.record(installation)
    _, line = tombstones.journal(installation).lines()
    ahead = tombstones.JournalLine(kind="request", number=line.number + 10, at=line.at, request=line.request)
    tombstones.journal(installation).append(lambda last: [ahead])
    with pytest.raises(DatabasePutBack):
        tombstones.record(installation)
    assert work()
    with installation.database.reading() as session:
        assert set(session.scalars(sa.select(Run.error_code))) == {"database_put_back"}


def test_a_restored_database_serves_nothing(
    gateway: TestClient,
    installation: Installation,
    file: Path,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> None:
    """As long as the tombstones contain events that the database lacks, the gateway is not ready, serves no versions or
    predictions, and refuses requests, because a restore would lose them."""
    live = new_model(new_dataset()["id"])
    work()
    forget("p1")
    tombstones.record(installation)
    right = file.read_bytes()
    *_, line = tombstones.journal(installation).lines()
    ahead = tombstones.JournalLine(kind="request", number=line.number + 10, at=line.at, request=line.request)
    tombstones.journal(installation).append(lambda last: [ahead])
    wait_until(lambda: gateway.get("/readyz").status_code == 503)
    model = f"/v1/models/{live['id']}"
    for answer in (
        gateway.get("/readyz"),
        gateway.get(model),
        gateway.get(f"{model}/versions/1/weights"),
        gateway.get("/v1/ledger/verdict"),
        gateway.post(f"{model}/predictions", json={"records": [[0.1, 0.2, 0.3]]}),
        gateway.post("/v1/deletion-requests", json={"subject_id": "p2"}),
        gateway.post("/v1/deletion-requests:batch", json={"requests": [{"subject_id": "p2"}]}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "database_put_back"), answer.text
    with locked(file.parent):  # the gateway records too
        file.write_bytes(right)
    wait_until(lambda: gateway.get("/readyz").status_code == 200)
    assert gateway.get(model).status_code == 200


def test_a_lost_file_is_rewritten(installation: Installation, file: Path, new_dataset: Make, forget: Make) -> None:
    """If the tombstone file is lost, a new file with every event in the database is written."""
    new_dataset()
    for number in range(3):
        forget(f"p{number}")
    tombstones.record(installation)
    before = statuses(installation)
    file.unlink()
    tombstones.record(installation)
    assert statuses(installation) == before
    assert len(before) == 3


def test_a_file_lost_during_a_run_is_rewritten(
    installation: Installation, file: Path, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """If a run finds that the tombstone file is missing, it writes every event in the database before its own line, so
    that earlier versions are taken into account after a restore."""
    model = new_model(new_dataset()["id"])
    assert work() == 1
    file.unlink()
    release = tombstones.Release(
        version_id="ver_2", model_id=model["id"], dataset_id=model["dataset_id"], mechanism=model["mechanism"], steps=1
    )
    tombstones.record(installation, release)
    first, *lines = tombstones.journal(installation).lines()
    assert first.kind == "begun"
    earlier, last = (line.release for line in lines if line.kind == "published")
    assert last == release
    assert earlier
    assert (earlier.model_id, earlier.steps) == (model["id"], model["mechanism"]["learn_steps"])


def test_old_lines_are_dropped(installation: Installation, file: Path, new_dataset: Make, forget: Make) -> None:
    """Dropping old lines removes all lines older than the given time except the last one. The remaining lines still
    verify, and new lines can be appended."""
    new_dataset()
    for number in range(4):
        forget(f"p{number}")
    tombstones.record(installation)
    journal = tombstones.journal(installation)
    written = file.read_bytes().splitlines()
    third = list(journal.lines())[3]
    assert journal.drop(before=third.at)
    dropped, *_ = journal.lines()
    assert (dropped.kind, dropped.count, dropped.at) == ("dropped", 3, third.at)
    assert file.read_bytes().splitlines()[1:] == written[3:]
    assert not journal.drop(before=third.at)
    asked = forget("p9")
    tombstones.record(installation)
    assert statuses(installation)[-1] == (asked["id"], "accepted")
    assert journal.drop(before=datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1))
    assert statuses(installation) == [(asked["id"], "accepted")]
    tombstones.record(installation)
    assert len(statuses(installation)) == 1


def test_retention_of_lines_is_a_setting(installation: Installation, new_dataset: Make, forget: Make) -> None:
    """No lines are dropped unless `tombstone_days` is set."""
    new_dataset()
    for number in range(3):
        forget(f"p{number}")
    tombstones.record(installation)
    tombstones.drop_old(installation)
    assert len(statuses(installation)) == 3
    installation.settings.tombstone_days = 1e-9
    tombstones.drop_old(installation)
    assert len(statuses(installation)) == 1
