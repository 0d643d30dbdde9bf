"""Many requests at once: batches, the result of each request, and exports."""

import csv
import datetime
import io
import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lethe import Client
from lethe.errors import Conflict, InputInvalid, Malformed, Unreachable
from lethe.features.lists.client import NewRequest, cut
from lethe.features.lists.contract import BatchItemOut
from tests.lethe.scripted import Reply, Script
from tests.tables import each


@given(count=st.integers(0, 50), size=st.integers(1, 60))
def test_batches_partition_the_iterable(count: int, size: int) -> None:
    """The concatenated batches equal the original iterable. No batch is empty or too long, and each is returned with
    the index of its first element."""
    requests: list[NewRequest] = [{"subject_id": str(number)} for number in range(count)]
    found = list(cut(iter(requests), size=size))
    assert [one for _, batch in found for one in batch] == requests
    assert all(1 <= len(batch) <= size for _, batch in found)
    assert [start for start, _ in found] == list(range(0, count, size))


@each("size", [0, 10_001])
def test_an_invalid_batch_size_is_refused(scripted_client: Client, size: int) -> None:
    """A batch size outside 1 to 10,000 is refused before anything is sent."""
    with pytest.raises(Malformed):
        list(scripted_client.deletion_requests.create_many([{"subject_id": "a"}], batch_size=size))


def test_every_request_has_a_result(client: Client) -> None:
    """Each request gets a result, in the original order, regardless of its batch. An invalid request does not affect
    the others."""
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    asked: list[NewRequest] = [
        {"subject_id": f"p{n}", "external_id": f"ticket {n}", "submitted_at": at} for n in range(25)
    ]
    asked[3] = {"subject_id": "p3", "regulation": "No Such"}
    asked[20:] = [{"subject_sha256": "not a hash"}] * 5
    told: list[tuple[int, int]] = []
    found = list(
        client.deletion_requests.create_many(
            iter(asked), source="nightly", batch_size=10, progress=lambda *state: told.append(state)
        )
    )
    assert [item.index for item in found] == list(range(25))
    assert [item.index for item in found if not item.accepted] == [3, 20, 21, 22, 23, 24]
    assert told == [(9, 1), (19, 1), (19, 6)]
    assert (found[3].status, found[3].code, found[3].id) == (422, "input_invalid", None)
    assert found[3].errors is not None
    assert found[3].errors[0]["path"] == "regulation"
    assert found[20].errors is not None
    assert (found[20].status, found[20].code, found[20].errors[0]["path"]) == (422, "batch_refused", "subject_sha256")
    assert "p3" not in repr(found)
    assert "ticket" not in repr(found)
    listed = {one.id: one for one in client.deletion_requests.list(source="nightly")}
    assert {item.id for item in found if item.accepted} == listed.keys()
    assert {one.submitted_at for one in listed.values()} == {at}


def test_repeating_many_requests_creates_nothing(client: Client) -> None:
    """Repeating a call with the same idempotency key creates no request twice, even after an interruption. Repeating it
    with another batch size is refused."""
    asked: list[NewRequest] = [{"subject_id": f"p{n}"} for n in range(25)]
    requests = client.deletion_requests

    def make(size: int = 10) -> Iterator[BatchItemOut]:
        return requests.create_many(asked, idempotency_key="mine", batch_size=size)

    begun = list(itertools.islice(make(), 12))
    assert len(list(requests.list())) == 20
    whole = list(make())
    assert whole[:12] == begun
    assert list(make()) == whole
    assert len(list(requests.list())) == 25
    with pytest.raises(Conflict) as refused:
        list(make(size=20))
    assert refused.value.code == "idempotency_conflict"
    assert len(list(requests.list())) == 25


def test_requests_round_trip_through_csv(client: Client, tmp_path: Path) -> None:
    """Requests can be imported from CSV. All requests, or only those that match a filter, can be exported to CSV,
    either to a file or to a stream."""
    requests = client.deletion_requests
    made = requests.create_from_csv(
        b"subject_id,regulation\r\np1,ccpa\r\np2,gdpr\r\n,gdpr\r\n", source="list 7", idempotency_key="once"
    )
    assert (made.accepted, made.refused) == (2, 1)
    assert [(item.line, item.status) for item in made.items] == [(2, 202), (3, 202), (4, 422)]
    one = requests.create_batch(requests=[{"subject_id": "p3"}], source="list 8")
    file = tmp_path / "requests.csv"
    requests.export(file)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert rows[0]["id"] == one.items[0].id
    assert {row["id"] for row in rows[1:]} == {made.items[0].id, made.items[1].id}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    for asked, expected in (
        ({"source": "list 7", "regulation": "ccpa"}, [made.items[0].id]),
        ({"subject_id": "p1", "status": "rejected"}, []),
    ):
        written = io.BytesIO()
        requests.export(written, **asked)
        assert [row["id"] for row in csv.DictReader(io.StringIO(written.getvalue().decode()))] == expected
    written = io.BytesIO()
    requests.export(written, due_before=datetime.datetime.now(datetime.UTC))
    assert written.getvalue().count(b"\n") == 1


def test_an_interrupted_export_leaves_the_file_unchanged(
    script: Script, scripted_client: Client, tmp_path: Path
) -> None:
    """If the connection is lost during an export, the file is left unchanged and the export is not retried."""
    file = tmp_path / "requests.csv"
    file.write_text("before")
    script.says(Reply(status=503, body={}), Reply(body=b"id\r\n" * 50_000, cut=True))
    with pytest.raises(Unreachable):
        scripted_client.deletion_requests.export(file)
    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["requests.csv"]
    assert len(script.calls) == 2


def test_an_export_takes_constant_memory(script: Script, scripted_client: Client, tmp_path: Path) -> None:
    """Exporting 32 MB takes only a few MB of memory."""
    body = b"id,status,outcome\r\n" * (32 * 2**20 // 19)
    script.says(Reply(body=body))
    tracemalloc.start()
    try:
        scripted_client.deletion_requests.export(tmp_path / "requests.csv")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "requests.csv").stat().st_size == len(body)
    assert peak < 4 * 2**20


ANNA = "anna@example.org"


@each(
    ("made", "fields"),
    [
        (lambda client: client.deletion_requests.export("/none", subject_id=[ANNA]), ["subject_id"]),
        (lambda client: list(client.deletion_requests.create_many([{"subject_id": ANNA}], source="")), ["source"]),
        (lambda client: client.deletion_requests.create_from_csv(b"", source=""), ["source"]),
    ],
)
def test_wrong_arguments_are_named(
    script: Script, scripted_client: Client, made: Callable[[Client], Any], fields: list[str]
) -> None:
    """If an argument is wrong, the error names the argument without quoting its value, and nothing is sent."""
    with pytest.raises(InputInvalid) as refused:
        made(scripted_client)
    assert [fault.path for fault in refused.value.errors] == fields
    assert "anna" not in str(refused.value)
    assert refused.value.__context__ is None
    assert script.calls == []


def test_unknown_arguments_raise(script: Script, scripted_client: Client) -> None:
    """An unknown argument raises `TypeError`, and nothing is sent."""
    with pytest.raises(TypeError):
        scripted_client.deletion_requests.export("/none", colour="red")  # type: ignore[call-arg]
    assert script.calls == []
