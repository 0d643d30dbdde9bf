"""If the key or ciphertext of a text is changed, only the request of that text is damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import DeletionRequest
from app.installations import Installation
from app.main import create_app
from app.operations import periodic_jobs
from tests.faults.processes import wait_until
from tests.stored import flipped, line_of

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]
WHERE: Any = DeletionRequest.__table__
DETAILS = {"external_id": "case-7", "metadata": {"desk": "three"}}


def page_of(installation: Installation, request_id: str) -> tuple[Path, int]:
    """Return the page that contains the key for a request's details, and the key's offset."""
    with installation.database.reading() as session:
        return line_of(installation, session.get_one(DeletionRequest, request_id).particulars.key)


def _flip_text(installation: Installation, request_id: str, place: int = 40) -> None:
    mine = WHERE.c.id == request_id
    column = sa.type_coerce(WHERE.c.particulars, sa.LargeBinary)
    with installation.database.writing() as session:
        [text] = session.connection().execute(sa.select(column).where(mine)).scalars()
        other = sa.literal(flipped(text, place), sa.LargeBinary)
        session.connection().execute(sa.update(WHERE).where(mine).values(particulars=other))


def _damage(installation: Installation, request_id: str, what: str) -> None:
    page, place = page_of(installation, request_id)
    content = page.read_bytes()
    match what:
        case "bit of the key":
            page.write_bytes(flipped(content, place + 40))
        case "name of the key-encryption key":
            page.write_bytes(flipped(content, place))
        case "line":
            page.write_bytes(content[:place] + b"\xa5" * 76 + content[place + 76 :])
        case "end of the page":
            page.write_bytes(content[: place + 30])
        case "page":
            page.unlink()
        case _:
            _flip_text(installation, request_id)


@pytest.mark.parametrize(
    "what", ["bit of the key", "name of the key-encryption key", "line", "end of the page", "page", "text"]
)
def test_damaged_details_are_marked(
    what: str, installation: Installation, settings: Settings, gateway: TestClient, forget: Make, get: Get
) -> None:
    """A request with damaged details is marked as damaged when it is read, listed or exported; requests encrypted with
    other keys are unaffected. Restoring a damaged file of keys repairs the request."""
    with TestClient(create_app(settings), headers=gateway.headers) as beside:
        other = beside.post("/v1/deletion-requests", json={"subject_id": "p2"} | DETAILS).json()["id"]
    mine = forget("p1", **DETAILS)["id"]
    before = {request_id: get(f"/deletion-requests/{request_id}") for request_id in (mine, other)}
    page, _ = page_of(installation, mine)
    right = page.read_bytes()
    _damage(installation, mine, what)
    damaged = get(f"/deletion-requests/{mine}")
    assert damaged == before[mine] | {"kept": "damaged", "external_id": None, "metadata": {}}
    assert {item["id"]: item for item in get("/deletion-requests")["items"]} == {mine: damaged, other: before[other]}
    assert [item["id"] for item in get("/deletion-requests?external_id=case-7")["items"]] == [other, mine][::-1]
    exported = gateway.get("/v1/deletion-requests.csv").text
    assert exported.count("(damaged)") == exported.count("case-7") == 1
    if what != "text":
        page.write_bytes(right)
        assert get(f"/deletion-requests/{mine}") == before[mine]


def test_a_person_with_damaged_details_is_forgotten(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Any,
) -> None:
    """A person whose request has damaged details is still forgotten, because rows are found by the hash of the id,
    which is not part of the details."""
    new_model(new_dataset(rows=60)["id"], noise_scale=0.02)
    assert work() == 1
    mine = forget("p3", **DETAILS)["id"]
    _damage(installation, mine, "page")
    assert work() == 1
    done = get(f"/deletion-requests/{mine}")
    assert (done["status"], done["outcome"], done["kept"]) == ("completed", "forgotten", "damaged")
    assert gateway.get(f"/v1/deletion-requests/{mine}/certificate").json()["certificates"]


def test_damaged_details_are_not_overwritten(
    installation: Installation, gateway: TestClient, forget: Make, get: Get, refused: Refused
) -> None:
    """Rejecting a request stores the explanation with the request's details, so rejection is refused while the details
    are damaged and accepted once the file that contains their key is restored."""
    mine = forget("p1", identity_verified=False, **DETAILS)["id"]
    page, _ = page_of(installation, mine)
    right = page.read_bytes()
    _damage(installation, mine, "bit of the key")
    body = {"ground": "legal_claims", "explanation": "We need it."}
    answer = gateway.post(f"/v1/deletion-requests/{mine}/reject", json=body)
    assert "Put back the file" in refused(answer, 409, "sealed_text_damaged")["detail"]
    assert get(f"/deletion-requests/{mine}")["status"] == "in_review"
    page.write_bytes(right)
    assert gateway.post(f"/v1/deletion-requests/{mine}/reject", json=body).json()["external_id"] == "case-7"


@pytest.mark.parametrize("what", ["bit of the key", "page"])
def test_damaged_details_are_erased_on_schedule(
    what: str, installation: Installation, gateway: TestClient, forget: Make, get: Get, policy: Callable[..., None]
) -> None:
    """Details are erased at the end of their retention period even if they cannot be read, and they do not prevent
    other details from being erased."""
    policy(retain_details_days=0)
    mine = forget("p1", identity_verified=False, **DETAILS)["id"]
    assert gateway.post(f"/v1/deletion-requests/{mine}/cancel").json()["status"] == "cancelled"
    _damage(installation, mine, what)
    periodic_jobs.purge_requests(installation)
    assert get(f"/deletion-requests/{mine}")["kept"] == "request"


@pytest.mark.parametrize("place", [0, 9])
def test_erasing_damaged_details_keeps_other_keys(
    place: int, installation: Installation, gateway: TestClient, forget: Make, get: Get, policy: Callable[..., None]
) -> None:
    """If a bit flip changes the key name stored with a request's details, so that it names no key or another request's
    key, erasing the details still destroys the right key."""
    asked = [forget(f"p{number}", identity_verified=False, **DETAILS)["id"] for number in range(4)]
    with installation.database.reading() as session:
        keys = {one: session.get_one(DeletionRequest, one).particulars.key for one in asked}
        mine = next(one for one in asked if f"{int(keys[one] or '', 16) ^ 1:020x}" in keys.values())
        column = sa.type_coerce(WHERE.c.particulars, sa.LargeBinary)
        [stored] = session.execute(sa.select(column).where(WHERE.c.id == mine)).scalars()
    policy(retain_details_days=0)
    assert gateway.post(f"/v1/deletion-requests/{mine}/cancel").json()["status"] == "cancelled"
    _flip_text(installation, mine, place)
    assert get(f"/deletion-requests/{mine}")["kept"] == "damaged"
    periodic_jobs.purge_requests(installation)
    assert get(f"/deletion-requests/{mine}")["kept"] == "request"
    assert installation.vault.open(stored) is None
    others = [get(f"/deletion-requests/{one}") for one in asked if one != mine]
    assert {(one["kept"], one["external_id"]) for one in others} == {("details", "case-7")}


@pytest.fixture
def only_asked_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the gateways that a test starts from running rare jobs by themselves."""
    monkeypatch.setattr(periodic_jobs, "_AFTER_START", 3600.0)


@pytest.mark.usefixtures("only_asked_jobs")
def test_damaged_details_are_counted_at_start_and_on_schedule(
    installation: Installation,
    settings: Settings,
    gateway: TestClient,
    forget: Make,
    sample: Callable[..., float],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway verifies all encrypted texts when it starts and then on a schedule. Readiness and a metric report the
    number of damaged texts, and the log names the damaged page of keys but no person. The number returns to 0 once the
    page is restored."""
    mine = [forget(f"p{number}", **DETAILS)["id"] for number in range(30)]
    page, place = page_of(installation, mine[-1])
    right = page.read_bytes()
    page.write_bytes(flipped(right, place + 40))
    periodic_jobs.verify_texts(installation)
    assert (gateway.get("/readyz").json()["texts_damaged"], sample("lethe_texts_damaged")) == (1, 1)
    [line] = [line for line in capsys.readouterr().err.splitlines() if "vault.texts_damaged" in line]
    logged = json.loads(line)
    assert (logged["table"], logged["page"], logged["count"]) == ("deletion_requests", page.name, 1)
    assert logged.keys() == {"event", "level", "timestamp", "table", "page", "count"}
    page.unlink()
    monkeypatch.setattr(periodic_jobs, "_AFTER_START", 0.0)
    with TestClient(create_app(settings), headers=gateway.headers) as started:
        wait_until(lambda: started.get("/readyz").json()["texts_damaged"] == 30)
    page.write_bytes(right)
    periodic_jobs.verify_texts(installation)
    assert gateway.get("/readyz").json()["texts_damaged"] == 0
