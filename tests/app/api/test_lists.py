"""Every list returns its newest entries first, in pages that stay the same while rows are added."""

import base64
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings, strategies as st

from app.audit import checkpoints
from app.installations import Installation
from tests.conftest import FORM
from tests.tables import each

LISTS = ["/datasets", "/models", "/deletion-requests", "/api-keys", "/runs"]
JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "1"}


@each("path", LISTS)
@each(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "cursor=x",
        "cursor=%00",
        "cursor=bnVsbA",  # null
        "cursor=WzEsMl0",  # [1,2]
        "cursor=WyIwMDAxLTAxLTAxVDAwOjAwOjAwKzIzOjU5IiwgIngiXQ",  # a time before the first year
        "cursor=WyIyMDI2LTAxLTAxVDAwOjAwOjAwKzAwOjAwIiwgIlx1ZDgwMCJd",  # a lone surrogate
    ],
)
def test_a_malformed_page_is_refused(
    gateway: TestClient, refused: Callable[..., dict[str, Any]], path: str, query: str
) -> None:
    """An out-of-range limit or an unknown cursor returns 422 with the name of the parameter."""
    problem = refused(gateway.get(f"/v1{path}?{query}"), 422, "input_invalid")
    assert [fault["path"] for fault in problem["errors"]] == [query.split("=")[0]]


class Lists:
    """Stateful test of every list of the API, in which rows are added, and changed so that they may leave a list."""

    def __init__(
        self, gateway: TestClient, installation: Installation, work: Callable[[], int], npz_of: Callable[..., bytes]
    ):
        self.gateway, self.at, self.work, self.npz_of = gateway, installation, work, npz_of
        self.numbers = itertools.count()

    def done(self, method: str, path: str, **asked: Any) -> Any:
        answer = self.gateway.request(method, f"/v1{path}", **asked)
        assert answer.is_success, answer.text
        return answer.json() if answer.headers.get("content-type") == "application/json" else None

    def everything(self, path: str) -> list[dict[str, Any]]:
        found = self.done("GET", f"{path}{'&' if '?' in path else '?'}limit=500")
        assert found["next_cursor"] is None
        items: list[dict[str, Any]] = found["items"]
        return items

    def pages(self, path: str, limit: int) -> Iterator[list[dict[str, Any]]]:
        cursor: str | None = ""
        while cursor is not None:
            query = f"limit={limit}{cursor and f'&cursor={cursor}'}"
            page = self.done("GET", f"{path}{'&' if '?' in path else '?'}{query}")
            yield page["items"]
            cursor = page["next_cursor"]

    def dataset(self) -> str:
        people = np.array([f"q{next(self.numbers)}" for _ in range(20)])
        files = {"file": ("people.npz", self.npz_of(subject=people))}
        return str(self.done("POST", "/datasets", data=FORM, files=files)["id"])

    def model(self, dataset_id: str) -> str:
        return str(self.done("POST", "/models", json={"name": "m", "dataset_id": dataset_id, "l2": 0.05})["id"])

    def live(self) -> str:
        model_id = self.model(self.dataset())
        self.work()
        return model_id

    def relearn(self, model_id: str) -> None:
        self.done("POST", f"/models/{model_id}/relearn")
        self.work()

    def request(self, **asked: Any) -> None:
        body = {"subject_id": f"stranger {next(self.numbers)}"} | asked
        self.done("POST", "/deletion-requests", json=body)

    def decide(self, request: dict[str, Any]) -> None:
        verb = ("approve", "cancel", "pause", "resume")[next(self.numbers) % 4]
        body = {"reason": "identity"} if verb == "pause" else None
        self.gateway.post(f"/v1/deletion-requests/{request['id']}/{verb}", json=body)

    def key(self) -> None:
        self.done("POST", "/api-keys", json={"name": "a", "scopes": ["models:read"]})

    def agent(self) -> None:
        key = base64.b64encode(Ed25519PrivateKey.generate().public_key().public_bytes_raw()).decode()
        body = {"agent_id": f"agent_{next(self.numbers)}", "name": "Agent", "verify_key": key}
        self.done("POST", "/agents", json=body)

    def issuer(self) -> None:
        body = {"issuer": f"https://{next(self.numbers)}.example", "audience": "lethe", "jwks": {"keys": [JWK]}}
        self.done("POST", "/identity-issuers", json=body)

    def forgotten(self) -> None:
        """Submit a request about a person with rows."""
        people = [f"q{next(self.numbers)}", *(f"r{next(self.numbers)}" for _ in range(19))]
        files = {"file": ("people.npz", self.npz_of(subject=np.array(people)))}
        self.done("POST", "/datasets", data=FORM, files=files)
        self.done("POST", "/deletion-requests", json={"subject_id": people[0]})

    def add_row(self, dataset_id: str) -> None:
        """Add a row; the call may be refused if the dataset is full."""
        row = self.npz_of(x=np.ones((1, 3)), y=np.array([1]), subject=np.array([f"new {next(self.numbers)}"]))
        answer = self.gateway.post(f"/v1/datasets/{dataset_id}/records", files={"file": ("more.npz", row)})
        assert answer.status_code == 202 or answer.json()["code"] == "dataset_full", answer.text

    def signed(self) -> None:
        self.key()
        with self.at.database.writing() as session:
            checkpoints.checkpoint(session, self.at.keys, checkpoints.due(session, every_seconds=0))

    def listed(self, name: str) -> tuple[str, Callable[[], Any], Callable[[dict[str, Any]], Any] | None]:
        """Return a list's path, a function that adds an object to the list, and a function that changes an existing
        object."""

        def delete(path: str) -> Callable[[dict[str, Any]], Any]:
            return lambda one: self.gateway.delete(f"/v1{path}/{one['id']}")

        match name:
            case "datasets":
                return "/datasets", self.dataset, None
            case "models":
                dataset_id = self.dataset()
                return "/models", lambda: self.model(dataset_id), lambda one: self.work()
            case "requests":
                return "/deletion-requests", self.request, None
            case "requests in review":
                waits = {"identity_verified": False}
                return "/deletion-requests?status=in_review", lambda: self.request(**waits), self.decide
            case "open requests":
                query = "due_before=2999-01-01T00:00:00Z"
                return f"/deletion-requests?{query}", lambda: self.request(identity_verified=False), self.decide
            case "requests of a model":
                model_id = self.live()
                people = iter([f"q{number}" for number in range(20)])
                path = f"/deletion-requests?model_id={model_id}"
                return path, lambda: self.request(subject_id=next(people, "q0")), lambda one: self.work()
            case "keys":
                return "/api-keys", self.key, lambda one: self.gateway.post(f"/v1/api-keys/{one['id']}/rotate", json={})
            case "agents":
                return "/agents", self.agent, delete("/agents")
            case "issuers":
                return "/identity-issuers", self.issuer, delete("/identity-issuers")
            case "tenants":
                number = self.numbers
                return "/tenants", lambda: self.done("POST", "/tenants", json={"name": f"t{next(number)}"}), None
            case "suppressions":
                return "/suppressions", self.forgotten, None
            case "audit log":
                return "/audit-log", self.key, None
            case "actions in the audit log":
                return "/audit-log?action=api_key.created", self.key, None
            case "additions":
                dataset_id = self.dataset()
                for number in range(16):
                    self.request(subject_id=f"q{number}")
                self.work()
                return f"/datasets/{dataset_id}/additions", lambda: self.add_row(dataset_id), lambda one: self.work()
            case "checkpoints":
                return "/audit-log/checkpoints", self.signed, None
            case "deliveries":
                hook = {"callback_url": "https://receiver.example/"}
                replay = "/v1/webhook-deliveries/{}/replay"
                path = "/webhook-deliveries"
                return path, lambda: self.request(**hook), lambda one: self.gateway.post(replay.format(one["id"]))
            case "runs":
                model_id = self.live()
                return "/runs", lambda: self.relearn(model_id), None
            case "versions":
                model_id = self.live()
                return f"/models/{model_id}/versions", lambda: self.relearn(model_id), None
            case _:
                model_id = self.live()
                weights = f"/models/{model_id}/versions/1/weights"
                return f"/models/{model_id}/exports", lambda: self.done("GET", weights), None


LISTED = [
    *("datasets", "models", "requests", "requests in review", "open requests", "requests of a model", "keys"),
    *("agents", "issuers", "tenants", "suppressions", "audit log", "actions in the audit log", "checkpoints"),
    *("deliveries", "exports", "additions", "runs", "versions"),
]
ACTS = st.lists(st.sampled_from(["add", "change", "change", "nothing"]), max_size=5)


@pytest.fixture
def lists(
    gateway: TestClient, installation: Installation, work: Callable[[], int], npz_of: Callable[..., bytes]
) -> Lists:
    return Lists(gateway, installation, work, npz_of)


@pytest.fixture(params=LISTED)
def listed(lists: Lists, request: pytest.FixtureRequest) -> tuple[str, Callable[[], Any], Any]:
    return lists.listed(request.param)


@settings(max_examples=6, derandomize=True, suppress_health_check=list(HealthCheck))
@given(acts=ACTS, limit=st.integers(1, 3), which=st.integers(0, 4))
def test_pages_contain_every_existing_row_once(
    lists: Lists,
    listed: tuple[str, Callable[[], Any], Callable[[dict[str, Any]], Any] | None],
    acts: list[str],
    limit: int,
    which: int,
) -> None:
    """Even if rows are added and changed while a client pages through a list, every row that existed before the first
    page and still matches the filters appears exactly once, newest first."""
    path, add, change = listed
    for _ in range(5 - len(lists.everything(path))):
        add()
    before = lists.everything(path)
    assert len(before) >= 5
    times = [item["created_at"] for item in before if "created_at" in item]
    assert times == sorted(times, reverse=True)
    left = iter(acts)
    seen = []
    for page in lists.pages(path, limit):
        seen += page
        match next(left, "nothing"):
            case "add":
                add()
            case "change" if change and before:
                change(before[which % len(before)])
    name = "sequence" if "audit-log" in path else "number" if path.endswith("versions") else "id"
    ids = [item[name] for item in seen]
    assert len(set(ids)) == len(ids)
    there = {item[name] for item in lists.everything(path)}
    stayed = [item[name] for item in before if item[name] in there]
    assert [one for one in ids if one in set(stayed)] == stayed
