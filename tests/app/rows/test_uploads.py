"""Slots of uploaded rows, and the people recorded for them."""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.db.tables import new_id
from app.installations import Installation
from app.rows import formats, uploads
from app.rows.formats import Batch
from app.rows.uploads import References, RowUpload, Suppressed, packed
from app.turns import Turns
from tests.conftest import npz
from tests.faults.processes import wait_until
from tests.stored import rows_of, slots_of
from tests.threads import num_waiting

Make = Callable[..., dict[str, Any]]
ROWS = 10_000


@pytest.fixture
def sorted_by_label(gateway: TestClient) -> dict[str, Any]:
    """Upload a file sorted by class, with one class in each half, and return the dataset. The first feature identifies
    each row."""
    x = np.column_stack((np.linspace(1, 2, ROWS), np.ones(ROWS)))
    arrays = {"x": x, "y": np.arange(ROWS) * 2 // ROWS, "subject": np.array([f"p{row}" for row in range(ROWS)])}
    file = io.BytesIO()
    np.savez(file, **arrays)
    form = {"name": "sorted", "classes": '["a", "b"]'}
    answer = gateway.post("/v1/datasets", data=form, files={"file": ("people.npz", file.getvalue())})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_sorted_file_is_stored_shuffled(installation: Installation, sorted_by_label: dict[str, Any]) -> None:
    """After a file sorted by class is uploaded, each class's number of rows in every hundredth of the slots is within
    6.5 standard deviations of the expected number. A correct permutation fails this check less than once in ten million
    runs."""
    labels = rows_of(installation, sorted_by_label["id"]).labels
    of_one_class = labels.reshape(100, -1).sum(axis=1)
    assert labels.sum() == ROWS // 2
    assert np.abs(of_one_class - 50).max() < 6.5 * np.sqrt(100 * 0.25)


def test_uploading_a_file_again_shuffles_it_differently(installation: Installation, new_dataset: Make) -> None:
    """Each upload of the same file draws a new permutation."""
    people = [f"p{row}" for row in range(40)]
    one, other = new_dataset(rows=40)["id"], new_dataset(rows=40)["id"]
    assert slots_of(installation, one, *people) != slots_of(installation, other, *people)


@pytest.mark.parametrize("held", ["in memory", "in files"])
def test_records_name_the_slots_of_their_rows(
    held: str,
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    forget: Make,
    work: Callable[[], int],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each person's record names the slot of their row, and forgetting a person nulls exactly that row."""
    if held == "in files":
        monkeypatch.setattr(uploads.Shuffle.__init__, "__kwdefaults__", {"part_bytes": 2**20, "held_bytes": 0})
        monkeypatch.setattr(uploads, "_HELD", 100)
    dataset = request.getfixturevalue("sorted_by_label")["id"]
    rows = rows_of(installation, dataset)
    of_people = slots_of(installation, dataset, *(f"p{row}" for row in range(0, ROWS, 97)))
    first = rows.features[of_people, 0] / rows.features[of_people, 1]
    np.testing.assert_allclose(first, np.linspace(1, 2, ROWS)[::97], rtol=1e-6)
    [slot] = slots_of(installation, dataset, "p4321")
    forget("p4321")
    assert work() == 1
    assert np.flatnonzero(~rows_of(installation, dataset).features.any(axis=1)).tolist() == [slot]


def test_skipped_rows_leave_no_gap(installation: Installation, gateway: TestClient, forget: Make) -> None:
    """Rows of suppressed people get neither a slot nor a record, and the slots of the other rows match their
    records."""
    forget("p3")
    file = io.BytesIO()
    x = np.column_stack((np.arange(1.0, 21), np.ones(20)))
    np.savez(file, x=x, y=np.arange(20) % 2, subject=np.array([f"p{row}" for row in range(20)]))
    form = {"name": "people", "classes": '["a", "b"]', "suppressed": "skip"}
    made = gateway.post("/v1/datasets", data=form, files={"file": ("people.npz", file.getvalue())}).json()
    assert (made["num_slots"], made["num_suppressed"]) == (19, 1)
    rows, kept = rows_of(installation, made["id"]), [row for row in range(20) if row != 3]
    slots = slots_of(installation, made["id"], *(f"p{row}" for row in kept))
    assert sorted(slots) == list(range(19))
    np.testing.assert_allclose(rows.features[slots, 0] / rows.features[slots, 1], x[kept, 0], rtol=1e-6)


def test_references_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The references to people, some of which are None, can be read repeatedly in order and leave no named file
    behind."""
    monkeypatch.setattr(uploads, "_HELD", 5)
    wanted = [f"sub_{number:040}" if number % 3 else None for number in range(23)]
    kept = References(tmp_path)
    for start in range(0, 23, 4):
        kept.append(packed(wanted[start : start + 4]))
    assert len(kept) == 23
    assert list(kept) == list(kept) == wanted
    assert list(tmp_path.iterdir()) == []


def test_a_reference_that_is_too_long_is_refused() -> None:
    """If the reference to a person is too long, it is refused instead of being truncated."""
    assert packed(["sub_" + 40 * "a"]).tolist() == [b"sub_" + 40 * b"a"]
    with pytest.raises(ValueError, match="44"):
        packed(["sub_" + 41 * "a"])


def test_one_tenants_uploads_do_not_delay_others(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While many files of one tenant are being read, batches of another tenant's file alternate with batches of the
    first tenant's files."""
    turns = Turns()
    monkeypatch.setattr(uploads, "_TURNS", turns)
    monkeypatch.setattr(formats, "BATCH_ROWS", 5)
    (tmp_path / "rows.npz").write_bytes(npz(rows=40))
    tenants = ["hard"] * 4 + ["quiet"]
    left, order = [*tenants], []

    def take(tenant_id: str) -> None:
        def check(_batch: Batch, _num_taken: int) -> None:
            order.append(tenant_id)
            # All others have requested their next turn, as they do if a batch takes longer than a request.
            wait_until(lambda: num_waiting(turns) >= len(left) - 1)

        upload = RowUpload(
            file=io.FileIO(tmp_path / "rows.npz"),
            folder=tmp_path,
            kind="npz",
            schema=None,
            classes=("a", "b"),
            subject_refs=lambda ids: [f"sub_{subject_id}" for subject_id in ids],
            tenant_id=tenant_id,
        )
        with installation.rows.writing(new_id("ds")) as writer:
            uploads.take_in(writer, upload, suppressed=Suppressed(among=lambda _refs: set(), skip=False), check=check)
            left.remove(tenant_id)

    with ThreadPoolExecutor(len(tenants)) as threads:
        with turns.taken("before"):
            uploading = [threads.submit(take, tenant_id) for tenant_id in tenants]
            wait_until(lambda: num_waiting(turns) == len(tenants))
        for upload in uploading:
            upload.result()
    # Either tenant may have been the first.
    assert order[:16] in (["hard", "quiet"] * 8, ["quiet", "hard"] * 8)
    assert order[16:] == ["hard"] * 24
