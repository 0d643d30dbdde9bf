"""A person's whole life with an installation, after which no data about them can be found."""

import contextlib
import json
import os
import socket
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from lethe import verification
from tests import servers as receivers
from tests.faults.processes import wait_until
from tests.features.networks import nets
from tests.features.protocols import protocols
from tests.forensics import captured, deployments, forms, person, search
from tests.forensics.deployments import Installation
from tests.forensics.finder import Finder
from tests.forensics.person import Person
from tests.forensics.probe.sitecustomize import STOP
from tests.forensics.search import Residue

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are watched by /proc"),
]

MAY_READ_MEMORY = os.geteuid() == 0
"""True if this process may read the memory of processes that no other process may read."""
LEARNED = {"l2": 1e-3, "noise_scale": 0.002}
"""Settings that make a run long enough to be interrupted."""
POLICY = protocols.POLICY | {"retain_details_days": 0, "auto_accept": False}
UPLOADS: dict[str, Callable[[person.Table], bytes]] = {
    "csv": person.Table.csv,
    "parquet": person.Table.parquet,
    "npz": person.Table.npz,
}


class Life:
    """Stateful life of a person's data: each method is one action of callers."""

    def __init__(
        self, installation: Installation, client: httpx.Client, somebody: Person, receiver: receivers.Server
    ) -> None:
        self.installation = installation
        self.somebody = somebody
        self.receiver = receiver
        self.datasets: dict[str, str] = {}  # by kind
        self.models: dict[str, str] = {}
        self.weights: dict[str, bytes] = {}
        self.request: str = ""
        self.controller = protocols.Controller(client, somebody)
        self.agent = protocols.Agent(client, somebody)
        self.by_protocols: set[str] = set()
        self.system_key: str = ""

    def call(self, method: str, path: str, *, expect: int = 200, **given: Any) -> Any:
        """Make a call, check the status of the response, and return its JSON."""
        with self.installation.client() as client:
            answer = client.request(method, f"/v1{path}", **given)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def learn(self) -> None:
        """Upload the person in three files and once more through a network, and train a model on each upload."""
        self.call("PATCH", "/tenant", json={"policy": POLICY})
        self._register_a_system()
        table = person.among_others(self.somebody)
        uploaded = {
            kind: self._upload("/datasets", kind, written(table), name=kind) for kind, written in UPLOADS.items()
        }
        uploaded["network"] = self._upload("/datasets", "npz", table.npz(), name="network", network_id=self._network())
        for kind, dataset in uploaded.items():
            self.datasets[kind] = dataset["id"]
            asked = {"name": kind, "dataset_id": self.datasets[kind]} | LEARNED
            self.models[kind] = self.call("POST", "/models", json=asked, expect=202)["id"]
        self.all_live()
        officer = {"name": "Maria Lopez", "email": "maria@example.com", "role": "officer"}
        self.call("POST", "/users", json=officer, expect=201)
        self._rehearse()

    def add(self) -> None:
        """Forget another person and add a row about this person in the freed slot, while a worker and a gateway are
        killed."""
        request = self.ask("p1", approve=True, callback_url=f"http://127.0.0.1:{self.receiver.port}/p1")
        self.installation.kill_worker()
        self.completed(request)
        before = self._live_version("csv")
        path = f"/datasets/{self.datasets['csv']}/records"
        self._upload(path, "csv", person.alone(self.somebody).csv(), expect=202)
        self.installation.kill_gateway()
        wait_until(lambda: self._additions() == ["applied"])
        # The rows are in their slots before the model has learned them, and a killed run leaves it live meanwhile.
        wait_until(lambda: self._live_version("csv") > before, seconds=360)
        self.all_live()

    def use(self) -> None:
        """Predict with the person's records, look them up, and export the weights that were trained on them."""
        record = dict(zip(person.COLUMNS, map(float, self.somebody.rows[0]), strict=True))
        self.call("POST", f"/models/{self.models['csv']}/predictions", json={"records": [record]})
        vectors = {"records": self.somebody.rows.tolist()}
        for kind in ("npz", "network"):
            self.call("POST", f"/models/{self.models[kind]}/predictions", json=vectors)
        with self.installation.client() as client:
            found = client.get(
                f"/v1/datasets/{self.datasets['npz']}/subjects/{urllib.parse.quote(self.somebody.subject_id)}"
            )
            assert found.json() == {"num_records": 8}
            for kind in self.models:
                self.weights[kind] = self._weights(kind)

    def ask_for_it(self) -> None:
        """Make two requests about the person, reject one, extend the other, and look both up."""
        refused = self.ask(self.somebody.subject_id, **self._particulars())
        explained = {"ground": "legal_claims", "explanation": self.somebody.explanation}
        self.call("POST", f"/deletion-requests/{refused}/reject", json=explained)
        once = {"Idempotency-Key": self.somebody.idempotency_key}
        self.request, again = (
            self.ask(self.somebody.subject_id, headers=once, **self._particulars()) for _ in range(2)
        )
        assert self.request == again
        self.call("POST", f"/deletion-requests/{self.request}/extend", json={"reason": self.somebody.extension_reason})
        for one in (refused, self.request):
            path = f"/deletion-requests/{one}/notes"
            self.call("POST", path, json={"text": self.somebody.remark}, expect=409 if one == refused else 201)
            if one != refused:
                assert [one["text"] for one in self.call("GET", path)["items"]] == [self.somebody.remark]
            path = f"/deletion-requests/{one}/attachments"
            file = {"file": (self.somebody.letter_name, self.somebody.letter.encode())}
            self.call("POST", path, files=file, expect=409 if one == refused else 201)
        [attached] = self.call("GET", path)["items"]
        assert attached["name"] == self.somebody.letter_name
        with self.installation.client() as client:
            assert client.get(f"/v1{path}/{attached['id']}").text == self.somebody.letter
        for name in ("subject_id", "external_id"):
            query = {name: getattr(self.somebody, name)}
            found = {one["id"] for one in self.call("GET", "/deletion-requests", params=query)["items"]}
            # The details of a refused request are not kept for long.
            assert {self.request} <= found <= {self.request, refused}

    def ask_by_protocols(self) -> None:
        """Make requests under two ids through a controller and an agent, and revoke one of the agent's requests."""
        before = self._requests()
        self.agent.set_up()
        if MAY_READ_MEMORY:
            self.control_of_messages()
        self.controller.ask(callback_url=self._callback_url("opendsr"))
        request, revoked = self.agent.ask(status_callback=self._callback_url("drp")), self.agent.ask_and_revoke()
        assert (self.controller.status(), self.agent.status(request)) == ("pending", "in_progress")
        self.by_protocols = self._requests() - before - {revoked}
        # The controller named one person twice and has two requests.
        assert len(self.by_protocols) == 3

    def control_of_messages(self) -> None:
        """Check that the gateway's memory contains a message whose last byte it has not received yet."""
        settings, texts = self.installation.settings, self.somebody.texts()
        admin_key = settings.resolved_admin_key_file().read_text().strip()
        messages = [
            (self.controller.PATH, admin_key, self.controller.message(callback_url=self._callback_url("opendsr"))),
            (self.agent.PATH, self.agent.token, self.agent.message(status_callback=self._callback_url("drp"))),
        ]
        names = {"subject request id", "other id", "key of an extension", "extension", "agent request id", "callback"}
        names |= {name for name in texts if name.startswith("claim")}
        finder = Finder({key: one for name in names for key, one in forms.of_text(name, texts[name]).items()})
        gateway = self.installation.gateway.processes()[0].pid
        with contextlib.ExitStack() as stack:
            for path, key, content in messages:
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", settings.port)))
                head = f"POST {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
                connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[:-1])
            wait_until(lambda: {name.split(",")[0] for name in _names(search.memory_of(gateway, finder))} == names)

    def forget(self) -> None:
        """Approve and complete the requests while a worker and a broker are killed, and check that the certificate
        verifies."""
        (self.installation.noted() / STOP).touch()
        for request in (self.request, *self.by_protocols):
            self.call("POST", f"/deletion-requests/{request}/approve")
        self.control_of_run()
        self.installation.kill_worker()
        if self.installation.redis:
            self.installation.redis.kill()
            self.installation.redis.start()
        for request in (self.request, *self.by_protocols):
            self.completed(request)
        keys = httpx.get(
            f"http://127.0.0.1:{self.installation.settings.port}/.well-known/jwks.json", timeout=120
        ).json()
        found = self.call("GET", f"/deletion-requests/{self.request}/certificate")["certificates"]
        assert len(found) == len(self.models)
        assert all(verification.verify(one["jws"], keys).guarantees for one in found)
        for kind, model in self.models.items():
            number = self._live_version(kind) - 1
            gone = self.call("GET", f"/models/{model}/versions/{number}/weights", expect=410)
            assert (kind in self.weights, gone["code"]) == (True, "weights_destroyed")

    def end(self) -> None:
        """Wait until all receivers have been notified and no request's details are kept."""
        wait_until(lambda: {"accepted", "completed", "opendsr completed", "drp fulfilled"} <= self.told())
        wait_until(lambda: not self._requests(kept="details"), seconds=270)

    def told(self) -> set[str]:
        """Return the event types and protocol statuses that the receiver was sent."""
        bodies = [json.loads(call.body) for call in self.receiver.calls]
        ours = {body["type"].removeprefix("deletion_request.") for body in bodies if "type" in body}
        opendsr = {f"opendsr {body['request_status']}" for body in bodies if "request_status" in body}
        return ours | opendsr | {f"drp {body['status']}" for body in bodies if "status" in body}

    def ask(self, subject_id: str, *, approve: bool = False, headers: Any = None, **particulars: Any) -> str:
        body = {"subject_id": subject_id} | particulars
        made: str = self.call("POST", "/deletion-requests", json=body, headers=headers, expect=202)["id"]
        if approve:
            self.call("POST", f"/deletion-requests/{made}/approve")
        return made

    def completed(self, request: str) -> None:
        """Acknowledge the request's tasks as the notified system, with a note if the request is about the person, and
        wait until the request is completed."""
        headers, said = {"Authorization": f"Bearer {self.system_key}"}, {"by": "on call"}
        said |= {"note": self.somebody.remark} if request == self.request else {}
        for task in self.call("GET", "/system-tasks", params={"request_id": request, "status": "open"})["items"]:
            self.call("POST", f"/system-tasks/{task['id']}/acknowledge", json=said, headers=headers)
        wait_until(lambda: self.call("GET", f"/deletion-requests/{request}")["status"] == "completed", seconds=360)

    def all_live(self) -> None:
        for model in self.models.values():
            wait_until(lambda model=model: self.call("GET", f"/models/{model}")["status"] == "live", seconds=360)

    def _particulars(self) -> dict[str, Any]:
        return {
            "external_id": self.somebody.external_id,
            "metadata": self.somebody.metadata,
            "callback_url": self._callback_url("ours"),
        }

    def _callback_url(self, of: str) -> str:
        return f"http://127.0.0.1:{self.receiver.port}{self.somebody.callback_path}&of={of}"

    def _requests(self, **having: str) -> set[str]:
        """Return the ids of all requests with these properties."""
        found = self.call("GET", "/deletion-requests", params={"limit": 100})["items"]
        return {one["id"] for one in found if having.items() <= one.items()}

    def _upload(self, path: str, kind: str, content: bytes, *, expect: int = 201, **form: str) -> Any:
        files = {"file": (f"{self.somebody.file_name}.{kind}", content)}
        described = {"schema": person.schema()} if kind != "npz" else {"classes": person.CLASSES}
        once = {"Idempotency-Key": f"{self.somebody.idempotency_key} {form.get('name', kind)} {path}"}
        return self.call(
            "POST", path, data=form | (described if form else {}), files=files, headers=once, expect=expect
        )

    def _register_a_system(self) -> None:
        """Register an external system that is notified of each request and acknowledges tasks with its own API key."""
        key = self.call("POST", "/api-keys", json={"name": "system", "scopes": ["requests:read"]}, expect=201)
        self.system_key = key["key"]
        url = f"http://127.0.0.1:{self.receiver.port}/systems"
        system = {"name": "recommender", "contact": "its team", "webhook_url": url, "api_key_id": key["id"]}
        self.call("POST", "/systems", json=system, expect=201)

    def _rehearse(self) -> None:
        """Rehearse forgetting 150 of 300 people on a copy, so that the person is included with a probability of one
        half."""
        path = f"/models/{self.models['npz']}/rehearsals"
        asked = self.call("POST", path, json={"people": 150}, expect=202)["id"]
        wait_until(lambda: self.call("GET", f"{path}/{asked}")["status"] == "completed", seconds=360)

    def _network(self) -> str:
        """Return the id of a public network that outputs its inputs unchanged as features."""
        same = nets.onnx_file(
            [nets.node("MatMul")],
            shape=(person.NUM_FEATURES,),
            out=("batch", person.NUM_FEATURES),
            weights=np.eye(person.NUM_FEATURES, dtype=np.float32),
        )
        made = self.call("POST", "/networks", data=nets.FORM, files={"file": ("same.onnx", same)}, expect=201)
        return str(made["id"])

    def _additions(self) -> list[str]:
        found = self.call("GET", f"/datasets/{self.datasets['csv']}/additions")["items"]
        return [one["status"] for one in found]

    def control_of_run(self) -> None:
        """Check that a live run's memory contains the values that it must not leave behind."""
        run = wait_until(self._stopped_run)
        if MAY_READ_MEMORY:
            noted = self.installation.noted().glob(f"{run.pid}.*")
            assert search.memory_of(run.pid, Finder(captured.patterns(noted)))

    def _stopped_run(self) -> psutil.Process | None:
        """Return the process that the probe stopped after its sixth step."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return next((one for one in self.installation.runs() if one.status() == psutil.STATUS_STOPPED), None)
        return None

    def live_weights(self) -> list[bytes]:
        """Return the parameters of all live models as bytes."""
        return [_parameters(self._weights(kind)).tobytes() for kind in self.models]

    def _live_version(self, kind: str) -> int:
        number: int = self.call("GET", f"/models/{self.models[kind]}")["live_version"]
        return number

    def _weights(self, kind: str) -> bytes:
        path = f"/v1/models/{self.models[kind]}/versions/{self._live_version(kind)}/weights"
        with self.installation.client() as client:
            return client.get(path).content


def _parameters(content: bytes) -> NDArray[np.float64]:
    return np.asarray(load(content)["parameters"])


def _names(residue: Residue) -> set[str]:
    return {name for found in residue.values() for name in found}


def _listed(residue: Residue) -> list[str]:
    """Format a residue as lines for a failure message."""
    return [f"{place}: {', '.join(sorted(found)[:9])}" for place, found in residue.items()]


def _assert_present(residue: Residue) -> None:
    """Check that the person's encoded rows are in the datasets' sealed blocks, and that no data about the person is
    anywhere in the clear."""
    assert {place.split(" of ")[0] for place in residue} == {"rows"}
    for way in ("of the schema", "of vectors"):
        assert {f"encoded row {row} {way}[0], <f4" for row in range(8)} <= _names(residue)
    # This value is created later.
    assert "encoded row 8 of the schema[0], <f4" in _names(residue)


def _assert_told(residue: Residue) -> None:
    """Check that what callers wrote is returned to them and stored sealed, and that no other data about the person is
    found anywhere."""
    places = {"answered" if place.startswith("GET ") else place.split(" in ")[0] for place in residue}
    assert places == {"answered", "opened"}
    said = {name.split(",")[0] for name in _names(residue)}
    # The explanation belongs to an ended request, which may have been purged already.
    said.discard("explanation of the rejection")
    ids = {"external id", "subject request id", "agent request id"}
    written = {"callback", "reason of the extension", "internal note", "attachment", "name of an attachment"}
    assert said == ids | written | {"key of metadata", "metadata 0", "metadata 1"}


@pytest.fixture(params=["sqlite", pytest.param("production", marks=[pytest.mark.postgres, pytest.mark.redis])])
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    deployed = {"sqlite": deployments.small, "production": deployments.production}[request.param]
    with (
        receivers.serving(receivers.status(200)) as receiver,
        deployed(tmp_path / "examined") as installation,
        installation.client() as client,
    ):
        yield Life(installation, client, person.new(), receiver)


def test_no_data_of_a_forgotten_person_is_left(life: Life) -> None:
    """No file, store, response, trace or memory contains a forgotten person's data, the weights that were trained on
    it, or intermediate results. Before the deletion, the same search finds all of these."""
    installation, finder = life.installation, Finder(life.somebody.patterns())
    life.learn()
    life.add()
    life.use()
    present = installation.examine(finder)
    _assert_present(present)
    weights: forms.Patterns = {}
    for name, content in life.weights.items():
        weights |= captured.of_weights(f"old weights of {name}", _parameters(content))
    known = _names(installation.examine_disks(Finder(weights)))
    assert {f"old weights of {name}[0], <f8" for name in life.weights} <= known
    life.ask_for_it()
    life.ask_by_protocols()
    asked = installation.examine(finder)
    _assert_told({place: found for place, found in asked.items() if place not in present})
    life.forget()
    life.end()

    computed = captured.patterns(installation.noted().iterdir(), but=life.live_weights())
    everything = Finder(finder.patterns | weights | computed)
    assert _listed(installation.examine(everything, live=MAY_READ_MEMORY)) == []
    for service in installation.services.values():
        service.stop()
    assert _listed(installation.examine_disks(everything)) == []
