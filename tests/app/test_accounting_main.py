"""The standalone accounting service answers calls and cannot change anything."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app import accounting_main, installations
from app.config import Settings
from app.db.tables import Model
from app.keys import Keys
from lethe.contract.problems import InstallationMismatch
from lethe.proof import accountant, conversion
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def alone(settings: Settings, admin_key: str) -> Iterator[TestClient]:
    headers = {"Authorization": f"Bearer {admin_key}"}
    with TestClient(accounting_main.create_app(settings), headers=headers) as client:
        yield client


def test_responses_equal_those_of_the_gateway(
    alone: TestClient, gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """Every accounting endpoint gives the same response from the standalone service as from the gateway."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    request = forget("p3")
    work()
    for path in (
        f"/v1/accounting/models/{model['id']}",
        f"/v1/accounting/models/{model['id']}/trajectory",
        f"/v1/accounting/datasets/{model['dataset_id']}",
        f"/v1/accounting/models/{model['id']}/ledger",
        f"/v1/accounting/deletion-requests/{request['id']}",
        "/v1/accounting/bounds",
        "/.well-known/jwks.json",
        "/readyz",
    ):
        assert alone.get(path).json() == gateway.get(path).json()
    asked = {"model_id": model["id"], "num_records": 2}
    answers = [client.post("/v1/accounting/preview", json=asked).json() for client in (alone, gateway)]
    assert answers[0] == answers[1]


def test_the_service_needs_only_the_public_key(
    settings: Settings,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    admin_key: str,
    tmp_path: Path,
) -> None:
    """With only the public key, the accounting service verifies certificates, heads and ledgers like the gateway and
    publishes that key. It does not start with another installation's public key."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    request = forget("p3")
    work()
    [certificate] = gateway.get(f"/v1/deletion-requests/{request['id']}/certificate").json()["certificates"]
    url = SecretStr(settings.resolved_database_url())
    apart = settings.model_copy(update={"data_dir": tmp_path / "apart", "database_url": url})
    shutil.copytree(settings.data_dir / "public", apart.data_dir / "public")
    with TestClient(accounting_main.create_app(apart), headers={"Authorization": f"Bearer {admin_key}"}) as client:
        for path in (
            f"/v1/certificates/{certificate['id']}",
            f"/v1/accounting/deletion-requests/{request['id']}",
            "/v1/ledger/head",
            "/v1/ledger/verdict",
            "/.well-known/jwks.json",
        ):
            answer = client.get(path)
            assert answer.status_code == 200, answer.text
            assert answer.json() == gateway.get(path).json()
        verdict = client.post("/v1/certificates:verify", json={"jws": certificate["jws"]})
        assert verdict.json()["valid"] is True
        assert client.get("/readyz").status_code == 200
    assert [file.name for file in apart.data_dir.rglob("*") if file.is_file()] == ["signing.jwk"]
    assert '"d"' not in (apart.data_dir / "public" / "signing.jwk").read_text()
    (apart.data_dir / "public" / "signing.jwk").unlink()
    Keys(tmp_path / "other" / "keys").create().publish()
    shutil.copy(tmp_path / "other" / "public" / "signing.jwk", apart.data_dir / "public")
    with pytest.raises(InstallationMismatch), TestClient(accounting_main.create_app(apart)):
        pass


def test_the_account_states_the_steps_of_a_reset(
    gateway: TestClient, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """A model's account states after how many steps the start of its chain no longer matters; with one step fewer, the
    guarantee would miss the target."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    reset = gateway.get(f"/v1/accounting/models/{model['id']}").json()["reset"]
    assert reset["guarantee"]["notion"] == "reset"
    stated = model["mechanism"]
    settings = {one.name: stated[one.name] for one in dataclasses.fields(Mechanism) if one.name in stated}
    mechanism = Mechanism(**settings | {"objective": Objective(settings["objective"])})
    target = conversion.gdp_mu(**model["target"])
    assert accountant.reset_mu(mechanism, steps=reset["steps"]) == reset["guarantee"]["mu"] <= target
    assert accountant.reset_mu(mechanism, steps=reset["steps"] - 1) > target


def test_other_endpoints_are_not_served(alone: TestClient) -> None:
    """The accounting service does not serve requests, models or datasets, and refuses a call without a key."""
    assert alone.post("/v1/deletion-requests", json={"subject_id": "p"}).status_code == 404
    assert alone.get("/v1/models").status_code == 404
    assert alone.get("/v1/accounting/bounds", headers={"Authorization": "none"}).status_code == 401


def test_the_database_refuses_writes(settings: Settings) -> None:
    """The database itself refuses any write by the accounting service."""
    with installations.opened(settings, read_only=True) as installation:
        with pytest.raises(sa.exc.DBAPIError, match=r"read-?only"), installation.database.writing() as session:
            session.execute(sa.update(Model).values(name="changed"))
        with installation.database.reading() as session:
            assert session.scalar(sa.select(sa.func.count()).select_from(Model)) == 0
