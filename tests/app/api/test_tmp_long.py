"""The OpenAPI document against its gateway: whatever it allows or forbids is sent, and the answer must be in it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from schemathesis import checks

from app import installation
from app.config import Settings
from app.main import create_app
from worker import runner

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]
DOCUMENT = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
DOCUMENT.config.generation.with_security_parameters = False  # keys have tests of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Populated:
    """A gateway in which everything exists once."""

    gateway: FastAPI
    admin: dict[str, str]
    ids: dict[str, Any]


@pytest.fixture(scope="module")
def populated(
    set_up_once: Path, tmp_path_factory: pytest.TempPathFactory, npz_of: Callable[..., bytes]
) -> Iterator[Populated]:
    """One gateway for all operations: their examples run into each other as real calls do."""
    folder = tmp_path_factory.mktemp("openapi") / "data"
    shutil.copytree(set_up_once, folder)
    settings = Settings(data_dir=folder)
    admin = {"Authorization": f"Bearer {settings.resolved_admin_key_file().read_text().strip()}"}
    gateway = create_app(settings)
    with TestClient(gateway, headers=admin) as client, installation.opened(settings) as at:

        def made(path: str, **asked: Any) -> dict[str, Any]:
            answer = client.post(f"/v1{path}", **asked)
            assert answer.is_success, answer.text
            runner.run_next(at, worker="test")
            document: dict[str, Any] = answer.json()
            return document

        dataset = made("/datasets", data={"name": "people"}, files={"file": ("people.npz", npz_of())})
        model = made("/models", json={"name": "model", "dataset_id": dataset["id"], "l2": 0.05})
        request = made("/deletion-requests", json={"subject_id": "p1"})
        [owed] = client.get(f"/v1/deletion-requests/{request['id']}").json()["models"]
        ids = {"dataset_id": dataset["id"], "model_id": model["id"], "request_id": request["id"]}
        ids |= {"run_id": owed["run_id"], "certificate_id": owed["certificate_id"]}
        yield Populated(gateway=gateway, admin=admin, ids=ids | {"subject_id": "p2"})


@pytest.mark.slow
@DOCUMENT.parametrize()
@hypothesis_settings(max_examples=250, suppress_health_check=list(HealthCheck))
def test_every_answer_is_in_the_document(case: schemathesis.Case, populated: Populated) -> None:
    """No call that the document allows or forbids gets an answer that it does not announce, or one above 499."""
    for name in case.path_parameters or {}:
        if name in populated.ids and len(str(case.path_parameters[name])) % 2:  # half of the ids are real
            case.path_parameters[name] = populated.ids[name]
    if isinstance(case.body, dict):
        for name in case.body.keys() & {"model_id", "dataset_id"}:
            if isinstance(case.body[name], str):
                case.body[name] = populated.ids[name]
    answer = case.call(app=populated.gateway, headers=populated.admin)
    case.validate_response(answer, checks=CHECKS, headers=populated.admin)
