"""Calls are sent only with arguments that the gateway accepts, and `help` documents the arguments."""

import datetime
import inspect
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lethe import AsyncClient, Client
from lethe.client.files import Frame
from lethe.contract.models import ModelOut, TargetIn
from lethe.contract.runs import RunOut
from lethe.contract.sets import RunStatus
from lethe.contract.tenants import Policy
from lethe.errors import InputInvalid, Problem
from tests.lethe.scripted import Reply, Script

ANNA = "anna@example.org"
WITH_FEATURES = pytest.mark.skipif(find_spec("lethe.features") is None, reason="predictions are a feature")
Made = Callable[[Client], Any]


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (lambda client: client.models.create(dataset_id="ds_1"), ["name"]),
        (lambda client: client.models.create(name=7, dataset_id=ANNA), ["name"]),
        (lambda client: client.models.create(name=ANNA, dataset_id="d", l2="0.1"), ["l2"]),
        (lambda client: client.models.create(name=ANNA, dataset_id="d", target={"epsilon": -1}), ["target.epsilon"]),
        (lambda client: client.models.create(name="m", dataset_id="d", l2=math.inf), ["l2"]),
        (lambda client: client.models.get(""), ["model_id"]),
        (lambda client: client.models.get(".."), ["model_id"]),
        (lambda client: client.models.get(None), ["model_id"]),
        (lambda client: client.models.get(f"{ANNA}\udcff"), ["model_id"]),
        pytest.param(
            lambda client: client.models.predictions("m", records=[[1.0], ANNA]),
            ["records.1", "records.1"],
            marks=WITH_FEATURES,
        ),
        pytest.param(lambda client: client.models.predictions("m", records=object()), ["records"], marks=WITH_FEATURES),
        (lambda client: client.runs.list(status=ANNA), ["status"]),
        (lambda client: client.deletion_requests.create(), ["body"]),
        (lambda client: client.deletion_requests.create(subject_id=f"{ANNA}\udcff"), ["subject_id"]),
        (lambda client: client.deletion_requests.create(subject_id=ANNA, metadata={ANNA: 7}), ["metadata"]),
        (lambda client: client.deletion_requests.create(subject_id=ANNA, submitted_at=ANNA), ["submitted_at"]),
        (lambda client: client.deletion_requests.reject("dr_1", ground=ANNA, explanation="x"), ["ground"]),
        (lambda client: client.certificates.verify("a.b.c", max_delta=2.0), ["max_delta"]),
        (lambda client: client.datasets.upload("/none", suppressed=ANNA), ["suppressed"]),
        (lambda client: client.datasets.upload("/none", adaptive_epsilon=-1.0), ["adaptive_epsilon"]),
        (lambda client: client.tenants.set_policy(policy={"regulations": {ANNA: {}}}), ["policy.regulations"]),
    ],
)
def test_wrong_arguments_are_named(script: Script, scripted_client: Client, made: Made, fields: list[str]) -> None:
    """The error for a wrong argument names the argument but does not quote its value, and no call is sent."""
    with pytest.raises(InputInvalid) as refused:
        made(scripted_client)
    assert [fault.path for fault in refused.value.errors] == fields
    assert "anna" not in str(refused.value)
    assert refused.value.__context__ is None
    assert script.calls == []


@pytest.mark.parametrize(
    "made",
    [
        lambda client: client.models.create(name="m", dataset_id="ds_1", epsilon=1.0),
        lambda client: client.models.get(),
        lambda client: client.models.get("mdl_1", "mdl_2"),
        lambda client: client.runs.list("mdl_1"),
        lambda client: client.datasets.upload(),
        lambda client: client.datasets.upload("/none", kind="csv"),
        pytest.param(
            lambda client: client.deletion_requests.attach("dr_1", "/none", idempotency_key="x"), marks=WITH_FEATURES
        ),
    ],
)
def test_unknown_arguments_raise(script: Script, scripted_client: Client, made: Made) -> None:
    """Too many, too few or unknown arguments raise `TypeError`, as with any function, and no HTTP request is sent."""
    with pytest.raises(TypeError):
        made(scripted_client)
    assert script.calls == []


@pytest.mark.parametrize(
    ("made", "sent"),
    [
        (
            lambda client: client.models.create(name="m", dataset_id="d", target=TargetIn(epsilon=2.0), l2=None),
            {"name": "m", "dataset_id": "d", "target": {"epsilon": 2.0}},
        ),
        (
            lambda client: client.tenants.set_policy(policy=Policy(auto_accept=False)),
            {"policy": {"auto_accept": False}},
        ),
        pytest.param(
            lambda client: client.models.predictions("m", records=({"age": 39}, (1, 2.5))),
            {"records": [{"age": 39}, [1.0, 2.5]]},
            marks=WITH_FEATURES,
        ),
        (
            lambda client: client.deletion_requests.create(
                subject_id="p", submitted_at=datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
            ),
            {"subject_id": "p", "submitted_at": "2026-01-31T00:00:00Z"},
        ),
        (lambda client: client.deletion_requests.pause("dr_1"), {"reason": "identity"}),
        pytest.param(
            lambda client: client.suppressions.lift(subject_id="p"),
            {"subject_id": "p", "reason": "consent_given"},
            marks=WITH_FEATURES,
        ),
    ],
)
def test_given_arguments_are_sent(script: Script, scripted_client: Client, made: Made, sent: Any) -> None:
    """The request body contains the caller's arguments, whether given as models or as plain values, and the default
    reasons of `pause` and `lift`. All other defaults are left to the gateway."""
    script.says(Reply(status=404, body={}))
    with pytest.raises(Problem):
        made(scripted_client)
    [call] = script.calls
    assert json.loads(call.body) == sent


def test_parameters_are_sent(script: Script, scripted_client: Client) -> None:
    """An enum member and its string value give the same filter, and omitted arguments are not sent. If a call has a
    body, its query parameters are still sent in the URL."""
    script.says(Reply(body={"items": [], "next_cursor": None}))
    for status in (RunStatus.RUNNING, "running"):
        assert list(scripted_client.runs.list(status=status, model_id=None, limit=7)) == []  # type: ignore[arg-type]
        assert script.calls[-1].path == "/v1/runs?limit=7&status=running"
    script.says(Reply(status=404, body={}))
    with pytest.raises(Problem):
        scripted_client.deletion_requests.create(subject_id="p", strict=True)
    assert script.calls[-1].path == "/v1/deletion-requests?strict=true"


def test_methods_are_documented() -> None:
    """Each client method has the name, signature and documentation that `help` and editors display."""
    blocking, awaited = Client("http://127.0.0.1:1", "k"), AsyncClient("http://127.0.0.1:1", "k")
    create = blocking.models.create
    signature = inspect.signature(create)
    assert (create.__name__, signature.return_annotation) == ("create", ModelOut)
    assert {one.kind for one in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert next(iter(signature.parameters)) == "name"
    assert list(signature.parameters)[-1] == "idempotency_key"
    assert signature.parameters["target"].annotation is TargetIn
    assert signature.parameters["l2"].annotation == float | None
    documentation = inspect.getdoc(create) or ""
    assert documentation.startswith("Create a model, fix its mechanism")
    assert "`batch_size`: Minimum number of rows that a step reads." in documentation
    assert "Raises `DatasetUnknown`," in documentation
    assert str(inspect.signature(blocking.models.weights)) == "(model_id: str, number: str | int, /) -> bytes"
    assert inspect.signature(blocking.runs.list).return_annotation == Iterator[RunOut]
    assert inspect.signature(awaited.runs.list).return_annotation == AsyncIterator[RunOut]
    assert inspect.signature(awaited.models.create).return_annotation == Awaitable[ModelOut]
    upload = inspect.signature(blocking.datasets.upload)
    assert upload.parameters["path"].annotation == str | Path | Frame
    assert "`classes`: List of class names" in (inspect.getdoc(blocking.datasets.upload) or "")
