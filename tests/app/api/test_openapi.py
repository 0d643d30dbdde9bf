"""The OpenAPI document tested against its gateway: calls that it allows or forbids are sent, and every response must be
documented.

The routes of `/opendsr` and `/drp` are not in the document: they have their own specifications, which it would
contradict (malformed input is 400 there). Their tests are `test_opendsr.py`, `test_drp.py`, `test_dialects.py`."""

import contextlib
import functools
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, seed, settings as hypothesis_settings
from hypothesis.errors import Flaky
from schemathesis import checks
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.generation.stateful import run_state_machine_as_test
from schemathesis.schemas import BaseSchema

from app import installations
from app.config import Settings
from app.main import create_app
from tests.faults import processes
from tests.lethe.declared import OPERATIONS
from worker import runner

ONE_ANSWER = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
    checks.missing_required_header,
    checks.ignored_auth,
]
"""Checks of one answer. `positive_data_acceptance` is not among them: no schema states which ids exist, or what can be
learned. `unsupported_method` and `missing_required_header` apply only to cases of the coverage mode."""
SEVERAL_ANSWERS = [*ONE_ANSWER, checks.use_after_free, checks.ensure_resource_availability]
REAL = re.compile("[a-z]+_[0-9a-f]{20}")
"""Pattern of an id from an answer."""

_LONG = 5000
OF_PROBES = {"GET /healthz", "GET /readyz", "GET /metrics"}
"""Operations of the document that no client offers."""
CALLED = sorted(OF_PROBES | {str(operation) for operation in OPERATIONS})

on_every_run = hypothesis_settings(max_examples=2, derandomize=True, suppress_health_check=list(HealthCheck))
at_length = hypothesis_settings(max_examples=8, suppress_health_check=list(HealthCheck))


def but(answer: Any) -> list[Any]:
    """Return the check to skip for a 207 response: a batch validates each request separately, so a malformed request
    does not cause the whole batch to be refused."""
    return [checks.negative_data_rejection] if answer.status_code == 207 else []


def _long_texts(schema: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the body, the name and the schema of each field of a request whose text may have more than `_LONG`
    characters and must match a pattern."""
    for body, declared in schema["components"]["schemas"].items():
        for name, text in declared.get("properties", {}).items() if body.endswith("In") else ():
            if text.get("maxLength", 0) > _LONG and "pattern" in text:
                yield body, name, text


@functools.cache
def document() -> BaseSchema:
    """Return the schema of this process's gateway. It is built by the first test rather than during collection, because
    generating the cases for each operation takes schemathesis seconds in every process."""
    schema = create_app(Settings()).openapi()
    # Schemathesis compiles pattern and length into one expression, which takes it seconds for each example.
    for _, _, text in _long_texts(schema):
        del text["pattern"]
    found = schemathesis.openapi.from_dict(schema)
    found.config.generation.with_security_parameters = False  # every call has a key, which `ignored_auth` removes
    found.config.request_timeout = 120  # ten seconds are too few while other tests run
    return found


def call(
    label: str,
    check: Callable[[schemathesis.Case], None],
    settings: hypothesis_settings,
    modes: Sequence[HypothesisTestMode],
) -> None:
    """Call an operation with arguments that the document allows or forbids."""
    method, path = label.split()
    operation = document()[path][method]

    def judged(case: schemathesis.Case) -> None:
        check(case)

    config = HypothesisTestConfig(
        project=document().config,
        modes=list(modes),
        settings=document().config.get_hypothesis_settings(operation=operation),
        explicit_settings=settings,
    )
    create_test(operation=operation, test_func=judged, config=config)()


COLUMNS = {
    "person": {"role": "subject"},
    "age": {"kind": "numeric", "min": 0, "max": 100},
    "work": {"kind": "categorical", "values": ["private", "public"]},
    "income": {"role": "label", "values": ["low", "high"]},
}
PEOPLE = [f"p{n},{n},{('private', 'public')[n % 2]},{('low', 'high')[n // 3 % 2]}" for n in range(40)]
KEPT = ("{model_id}", "{dataset_id}")
STAYS = {"model_id", "dataset_id", "key_id", "user_id", "system_id", "dp_model_id", "table_id", "trainer_id"} | {
    "attested_trainer_id"
}
"""Fields of objects that can still be read after they are retired, revoked or disabled."""
CHANGING = {"request_id", "key_id", "issuer_id", "id"}
VERIFY_KEY = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A gateway with an object of every kind; `ids` are the objects' ids, keyed by parameter name."""

    url: str
    settings: Settings
    admin: dict[str, str]
    ids: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def call(self, method: str, path: str, **asked: Any) -> dict[str, Any]:
        answer = requests.request(method, f"{self.url}/v1{path}", headers=self.admin, timeout=120, **asked)
        assert answer.ok, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def work(self) -> None:
        with installations.opened(self.settings) as installation:
            while runner.run_next(installation, worker="test"):
                pass

    def populate(self) -> None:
        """Create one object of every kind."""
        files = {"file": ("people.csv", "\n".join(["person,age,work,income", *PEOPLE]))}
        form = {"name": "people", "schema": json.dumps({"columns": COLUMNS})}
        dataset = self.call("POST", "/datasets", data=form, files=files)
        model = self.call("POST", "/models", json={"name": "model", "dataset_id": dataset["id"], "l2": 0.05})
        self.work()
        asked = {"subject_id": "p1", "callback_url": "https://receiver.example/"}
        request = self.call("POST", "/deletion-requests", json=asked)
        self.work()
        [owed] = self.call("GET", f"/deletion-requests/{request['id']}")["models"]
        rehearsal = self.call("POST", f"/models/{model['id']}/rehearsals", json={"people": 10})
        files = {"file": ("more.csv", "person,age,work,income\nq1,30,public,low")}
        addition = self.call("POST", f"/datasets/{dataset['id']}/records", files=files)
        files = {"file": ("letter.txt", "Forget me.")}
        attached = self.call("POST", f"/deletion-requests/{request['id']}/attachments", files=files)
        self.ids.update(
            attachment_id=attached["id"],
            dataset_id=dataset["id"],
            model_id=model["id"],
            rehearsal_id=rehearsal["id"],
            request_id=request["id"],
            run_id=owed["run_id"],
            certificate_id=owed["certificate_id"],
            addition_id=addition["id"],
            delivery_id=self.call("GET", "/webhook-deliveries")["items"][0]["id"],
            tenant_id=self.call("GET", "/tenant")["id"],
            subject_id="p2",
            name="gdp_eps",
        )

    def new(self, parameter: str) -> str:
        """Return the id of a new object if calls can change such an object, and otherwise the id of the existing
        one."""
        number = next(self.numbers)
        match parameter:
            case "request_id" if number % 2:
                asked = {"subject_id": f"p{number % 40}", "identity_verified": False}
                answer = requests.post(f"{self.url}/v1/deletion-requests", headers=self.admin, json=asked, timeout=120)
                if not answer.ok:  # a call has changed the tenant's policy
                    return self.ids[parameter]
                made = answer.json()
            case "key_id":
                made = self.call("POST", "/api-keys", json={"name": "key", "scopes": ["models:read"]})
            case "issuer_id":
                asked = {"issuer": f"https://{number}.example", "audience": "lethe", "jwks": {"keys": [JWK]}}
                made = self.call("POST", "/identity-issuers", json=asked)
            case "id":
                asked = {"agent_id": f"agent-{number}", "name": "Agent", "verify_key": VERIFY_KEY}
                made = self.call("POST", "/agents", json=asked)
            case _:
                return self.ids[parameter]
        return str(made["id"])

    def check(self, case: schemathesis.Case) -> None:
        self.make_real(case)
        answer = case.call(base_url=self.url, headers=self.admin)
        case.validate_response(answer, checks=ONE_ANSWER, excluded_checks=but(answer), headers=self.admin)

    def make_real(self, case: schemathesis.Case) -> None:
        """Replace half of the invented ids in the path, and all in the body, with existing ids. Replace invented
        idempotency keys with numbered keys, each of which is used twice."""
        keeps = case.method == "DELETE" and case.path.endswith(KEPT)  # other calls need what this would retire
        if not is_wrong(case, ParameterLocation.PATH) and not keeps:
            for name, found in (case.path_parameters or {}).items():
                if name in CHANGING | self.ids.keys() and not REAL.fullmatch(str(found)) and len(str(found)) % 2:
                    case.path_parameters[name] = self.new(name)
        if isinstance(case.body, dict) and not is_wrong(case, ParameterLocation.BODY):
            for name in case.body.keys() & self.ids.keys() - {"name"}:
                if isinstance(case.body[name], str) and not REAL.fullmatch(case.body[name]):
                    case.body[name] = self.ids[name]
        if "Idempotency-Key" in (case.headers or {}) and not is_wrong(case, ParameterLocation.HEADER):
            case.headers["Idempotency-Key"] = f"key {next(self.numbers) // 2}"


def is_wrong(case: schemathesis.Case, part: ParameterLocation) -> bool:
    """Return True if this part of the call was generated to violate the OpenAPI document."""
    return case.meta is not None and case.meta.is_negative_at(part)


@pytest.fixture(scope="module")
def service(set_up_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start one service for all operations, so that calls to different operations affect each other as they do in
    practice."""
    folder = tmp_path_factory.mktemp("openapi") / "data"
    shutil.copytree(set_up_once, folder)
    settings = Settings(data_dir=folder, max_steps=2000, failed_calls_per_minute=0)
    admin = {"Authorization": f"Bearer {settings.resolved_admin_key_file().read_text().strip()}"}
    with processes.gateway(settings) as (_, url):
        service = Service(url=url, settings=settings, admin=admin)
        service.populate()
        yield service


@pytest.fixture(scope="module")
def working(service: Service) -> Iterator[processes.Child]:
    """Start one worker for all operations, because starting a worker takes as long as calling several operations."""
    with processes.worker(service.settings) as worker:
        yield worker


@pytest.fixture
def served(service: Service, working: processes.Child) -> Iterator[Service]:
    """Return the service while a worker is running, and assert that the worker is still alive afterwards."""
    yield service
    assert working.process.is_alive(), working.log.read_text()


def follow_links(service: Service, *, rounds: int, steps: int) -> None:
    """Run a stateful test that follows the links in responses and checks each response against the previous ones."""
    failures: list[Exception] = []
    rotated: set[str | None] = set()  # keys that expire although no call deletes them

    class Story(document().as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return {"base_url": service.url, "headers": service.admin}

        def before_call(self, case: schemathesis.Case) -> None:
            service.make_real(case)

        def validate_response(self, response: Any, case: schemathesis.Case, **_: Any) -> None:
            key_id = (case.path_parameters or {}).get("key_id")
            try:
                case.validate_response(
                    response,
                    checks=SEVERAL_ANSWERS,
                    excluded_checks=[
                        *but(response),
                        *([checks.ensure_resource_availability] if key_id in rotated else []),
                        *([checks.use_after_free] if STAYS & (case.path_parameters or {}).keys() else []),
                    ],
                    headers=service.admin,
                    recorder=self.recorder,
                )
            except Exception as failure:
                failures.append(failure)
                raise
            if case.path.endswith("/rotate") and response.status_code == 201:
                rotated.add(key_id)

    told = hypothesis_settings(at_length, max_examples=3, phases=[Phase.generate], stateful_step_count=steps)
    for number in range(rounds):
        with contextlib.suppress(Flaky):  # results depend on all earlier calls, so no story can be replayed
            run_state_machine_as_test(seed(number)(Story), settings=told)
    assert not failures, failures


@pytest.mark.slow
def test_every_operation_is_called() -> None:
    """The tests call exactly the operations of the OpenAPI document."""
    assert sorted(result.ok().label for result in document().get_all_operations()) == CALLED


def test_long_texts_must_match_their_pattern(service: Service) -> None:
    """A long text with a NUL character is refused. The generated requests do not show this, because `document` leaves
    out the patterns of long texts."""
    schema = create_app(Settings()).openapi()
    examined = set()
    for (path, called), (body, name, _) in itertools.product(schema["paths"].items(), _long_texts(schema)):
        content = called.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if content.get("schema", {}).get("$ref", "").endswith(f"/{body}"):
            example = schema["components"]["schemas"][body].get("examples", [{}])[0] | {name: "a\0b"}
            answer = requests.post(service.url + path, json=example, headers=service.admin, timeout=120)
            assert answer.status_code == 422, path
            assert name in [fault["path"] for fault in answer.json()["errors"]], path
            examined.add((body, name))
    assert examined == {(body, name) for body, name, _ in _long_texts(schema)} != set()


@pytest.mark.parametrize("operation", CALLED)
def test_every_response_is_in_the_document(operation: str, service: Service) -> None:
    """Generated requests, which use the examples in the document, receive only documented responses and never a 5xx
    status."""
    call(operation, service.check, on_every_run, [HypothesisTestMode.EXAMPLES, HypothesisTestMode.FUZZING])


@pytest.mark.soak
@pytest.mark.parametrize("operation", CALLED)
def test_every_response_is_documented_while_a_worker_runs(operation: str, served: Service) -> None:
    """In a long series of generated requests, which reach every limit in the document, all responses are documented,
    even while a worker changes objects."""
    call(operation, served.check, at_length, [HypothesisTestMode.COVERAGE, HypothesisTestMode.FUZZING])


def test_links_lead_to_existing_objects(service: Service) -> None:
    """Links in responses, followed in any order, lead to existing objects and never to deleted ones."""
    follow_links(service, rounds=3, steps=10)


@pytest.mark.soak
def test_links_lead_to_existing_objects_while_a_worker_runs(served: Service) -> None:
    """In a long series of calls during which a worker changes objects, the links in responses lead to existing objects
    and never to deleted ones."""
    follow_links(served, rounds=5, steps=20)
