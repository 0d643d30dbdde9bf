"""Personal data does not appear in responses, logs or files, or in what remains after a person is forgotten."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.config import Settings
from app.main import create_app
from tests.stored import rows_of, slots_of
from tests.tables import each

SUBJECT = "jane.doe@example.org"
AGE = "61.53125"  # exact in float32, and unlike anything else in the file
SCHEMA = {
    "columns": {
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "income": {"role": "label", "values": ["low", "high"]},
        "person": {"role": "subject"},
        "note": {"role": "ignored"},
    }
}
NOTE = "allergic-to-nuts"
ROWS = "".join(f"{20 + row},{('low', 'high')[row % 2]},p{row},-\n" for row in range(30))
CSV = f"age,income,person,note\n{AGE},low,{SUBJECT},{NOTE}\n{ROWS}"


@pytest.fixture
def log() -> io.StringIO:
    """Return the logs of the gateway and its worker."""
    return io.StringIO()


@pytest.fixture
def heard() -> list[str]:
    """Return all responses received so far, with headers and bodies."""
    return []


@pytest.fixture
def gateway(settings: Settings, admin_key: str, heard: list[str], log: io.StringIO) -> Iterator[TestClient]:
    """Start the gateway with debug logging, and record every response."""

    def keep(answer: httpx.Response) -> None:
        heard.append(f"{answer.headers} {answer.read()!r}")

    app = create_app(settings.model_copy(update={"log_level": "debug"}))
    headers = {"Authorization": f"Bearer {admin_key}"}
    with redirect_stderr(log), TestClient(app, headers=headers) as client:
        client.event_hooks["response"].append(keep)
        yield client


@pytest.fixture
def model(gateway: TestClient, new_model: Callable[..., Any], work: Callable[[], int]) -> dict[str, Any]:
    """Return a model with a live version that was trained on a dataset containing the person."""
    form = {"name": "people", "schema": json.dumps(SCHEMA)}
    headers = {"Idempotency-Key": "upload"}
    answer = gateway.post("/v1/datasets", data=form, files={"file": ("p.csv", CSV)}, headers=headers)
    assert answer.status_code == 201
    made: dict[str, Any] = new_model(answer.json()["id"])
    work()
    return made


def files_with(folder: Path, text: str) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "lethe.db" for path in files)
    assert any(path.name.endswith("-wal") for path in files)  # the log of the open database is searched as well
    return [str(path) for path in files if text.encode() in path.read_bytes()]


def test_a_person_is_never_named(
    gateway: TestClient,
    model: dict[str, Any],
    forget: Callable[..., dict[str, Any]],
    get: Callable[[str], Any],
    work: Callable[[], int],
    log: io.StringIO,
    settings: Settings,
    heard: list[str],
) -> None:
    """A person's id and row appear in no response, log line or file of the installation, at any point between upload
    and certificate."""
    once = {"Idempotency-Key": "forget"}
    for _ in range(2):
        answer = gateway.post("/v1/deletion-requests", json={"subject_id": SUBJECT}, headers=once)
        assert answer.status_code == 202
    get(f"/datasets/{model['dataset_id']}/subjects/{SUBJECT}")
    get(f"/deletion-requests?subject_id={SUBJECT}")
    assert work() == 1
    done = get(f"/deletion-requests/{answer.json()['id']}")
    assert done["outcome"] == "forgotten"
    for path in (
        "/datasets",
        "/models",
        "/runs",
        f"/models/{model['id']}/versions",
        f"/accounting/models/{model['id']}/ledger",
        f"/deletion-requests/{done['id']}/events",
        f"/deletion-requests/{done['id']}/certificate",
    ):
        get(path)
    gateway.get("/metrics")
    assert {"gateway.call_answered", "unlearning.run_ended"} <= {
        json.loads(line)["event"] for line in log.getvalue().splitlines()
    }
    for secret in (SUBJECT, AGE, NOTE):
        assert secret not in "".join(heard) + log.getvalue()
        assert files_with(settings.data_dir, secret) == []


REFUSED: dict[str, Callable[[TestClient, dict[str, Any]], httpx.Response]] = {
    "a row that breaks the schema": lambda gateway, model: gateway.post(
        "/v1/datasets",
        data={"name": "people", "schema": json.dumps(SCHEMA).replace("100", "50")},
        files={"file": ("p.csv", CSV)},
    ),
    "a file without a header": lambda gateway, model: gateway.post(
        "/v1/datasets",
        data={"name": "people", "schema": json.dumps(SCHEMA)},
        files={"file": ("p.csv", CSV[CSV.index("\n") + 1 :])},
    ),
    "a damaged file": lambda gateway, model: gateway.post(
        "/v1/datasets",
        data={"name": "people", "schema": json.dumps(SCHEMA)},
        files={"file": ("p.parquet", CSV)},
    ),
    "a record to predict": lambda gateway, model: gateway.post(
        f"/v1/models/{model['id']}/predictions", json={"records": [{"age": AGE + "x", "person": SUBJECT}]}
    ),
    "a subject in a list": lambda gateway, model: gateway.post(
        "/v1/deletion-requests", json={"subject_id": [SUBJECT, AGE, NOTE]}
    ),
    "a subject that nobody knows": lambda gateway, model: gateway.get(
        f"/v1/datasets/{model['dataset_id']}/subjects/x{SUBJECT}"
    ),
    "a filter that is misspelled": lambda gateway, model: gateway.get(
        "/v1/deletion-requests", params={"subjectid": SUBJECT, "external-id": NOTE}
    ),
    "a path that is none": lambda gateway, model: gateway.get(f"/v1/people/{SUBJECT}"),
}


@each("case", REFUSED)
def test_a_refusal_repeats_no_personal_data(
    gateway: TestClient,
    model: dict[str, Any],
    log: io.StringIO,
    settings: Settings,
    heard: list[str],
    case: str,
) -> None:
    """When a call is refused, none of its personal data appears in the response, in the log or in files left behind."""
    assert 400 <= REFUSED[case](gateway, model).status_code < 500
    for secret in (SUBJECT, AGE, NOTE):
        assert secret not in "".join(heard) + log.getvalue()
        assert files_with(settings.data_dir, secret) == []


def test_an_encoded_row_is_never_unencrypted_in_a_file(
    gateway: TestClient,
    model: dict[str, Any],
    forget: Callable[..., dict[str, Any]],
    work: Callable[[], int],
    settings: Settings,
    installation: Any,
) -> None:
    """A person's encoded row, which identifies them as reliably as a name, never appears unencrypted in any file,
    either before or after the person is forgotten."""
    [slot] = slots_of(installation, model["dataset_id"], SUBJECT)
    row = rows_of(installation, model["dataset_id"]).features[slot].tobytes()

    def holders() -> list[str]:
        return [path.name for path in settings.data_dir.rglob("*") if path.is_file() and row in path.read_bytes()]

    assert holders() == []
    forget(SUBJECT)
    work()
    assert holders() == []
