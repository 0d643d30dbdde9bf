"""Pages of models: their state, their versions, and a recomputed ledger."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db import Actor
from app.db.tables import LedgerEntry
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Work = Callable[[], int]
SomebodyWith = Callable[..., Browser]


@pytest.fixture
def learned(new_dataset: Make, new_model: Make, work: Work) -> dict[str, Any]:
    """Return a trained model whose noise is so small that forgetting takes steps."""
    model = new_model(new_dataset()["id"], name="churn <b>", noise_scale=0.02)
    work()
    return model


def test_an_empty_list_of_models_is_explained(officer: Browser) -> None:
    """If there are no models, the list explains how to create one."""
    page = officer.get("/admin/models")
    assert page.status_code == 200
    assert "No models yet" in page.text


def test_a_model_shows_version_guarantee_and_target(officer: Browser, learned: dict[str, Any]) -> None:
    """The list and the model's page show the model's version, guarantee and target. The model's name is shown as plain
    text."""
    page = officer.get("/admin/models").text
    assert f"/admin/models/{learned['id']}" in page
    assert "churn &lt;b&gt;" in page
    page = officer.get(f"/admin/models/{learned['id']}").text
    assert "Residual influence of erased people" in page
    assert "Within the target" in page
    assert "Cumulative leakage of all versions" in page
    assert f"/admin/accounting/datasets/{learned['dataset_id']}" in page


def test_people_waiting_to_be_forgotten_are_shown(
    officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """The overview, the list and a model's page show how many people are still to be forgotten, when their requests are
    due and why they are waiting."""
    model = new_model(new_dataset()["id"], batching={"max_requests": 200, "max_wait_seconds": 86_400})
    work()
    places = ["/admin/overview", "/admin/models", f"/admin/models/{model['id']}"]
    for place in places:
        assert any(empty in officer.get(place).text for empty in (">none</span>", "<b>None</b>"))
    forget("p1")
    forget("p2")
    forget("p3", identity_verified=False)
    assert work() == 0
    for place in places:
        page = officer.get(place).text
        assert "3 people" in page
        assert "2 wait for a batch of 200, until <time" in page
        assert "1 in review" in page


def test_a_model_in_training_has_no_guarantee(officer: Browser, new_dataset: Make, new_model: Make) -> None:
    """A model without a version has no guarantee, no curve, no cost estimate and an empty ledger. Its pages say so."""
    path = f"/admin/models/{new_model(new_dataset()['id'])['id']}"
    page = officer.get(path).text
    assert "No version yet" in page
    assert "What-if: more requests" not in page
    assert "No curve yet" in officer.get(f"{path}/curve").text
    assert "Nothing is accounted for yet" in officer.get(f"{path}/ledger").text
    asked = officer.get(f"{path}/what-if")
    assert asked.status_code == 409
    assert "wait until its first version is published" in asked.text
    assert "The ledger is valid" in officer.post(f"{path}/ledger/verify").text


@each("path", ["", "/live", "/curve", "/what-if", "/versions", "/exports", "/ledger"])
def test_an_unknown_model_is_a_404(officer: Browser, path: str) -> None:
    """Every URL of an unknown model's pages returns the dashboard's 404 page."""
    page = officer.get(f"/admin/models/mdl_0{path}")
    assert page.status_code == 404
    assert "Not found" in page.text


def test_versions_and_copies_are_listed(
    officer: Browser, gateway: TestClient, learned: dict[str, Any], forget: Make, work: Work
) -> None:
    """Destroyed weights stay in the list of versions with the time of their destruction. The holders of copies are
    named."""
    gateway.get(f"/v1/models/{learned['id']}/versions/1/weights")
    forget("p3")
    work()
    found = officer.get(f"/admin/models/{learned['id']}/versions").text
    assert found.index('good">Live<') < found.index('quiet">Destroyed<')
    found = officer.get(f"/admin/models/{learned['id']}/exports").text
    assert "key_" in found
    assert "Copies outside this installation are not unlearned" in found


def test_retraining_is_requested(officer: Browser, learned: dict[str, Any], work: Work) -> None:
    """Retraining is requested with a button, and the page then shows the request."""
    answer = officer.post(f"/admin/models/{learned['id']}/relearn")
    assert answer.status_code == 303
    assert "retrains as soon as" in officer.get(answer.headers["location"]).text
    assert work() == 1
    assert ">Relearning<" in officer.get(f"/admin/models/{learned['id']}/ledger").text


def test_the_ledger_is_recomputed(
    officer: Browser, learned: dict[str, Any], installation: Installation, by: Actor
) -> None:
    """The page's verification reports a valid ledger. If a number was changed in the database after its triggers had
    been dropped, the verification names the changed entry."""
    path = f"/admin/models/{learned['id']}/ledger/verify"
    assert "The ledger is valid." in officer.post(path).text
    with installation.database.writing(by=by) as session:
        for name in session.scalars(sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            session.execute(sa.text(f"DROP TRIGGER {name}"))
        changed = sa.func.replace(LedgerEntry.body, '"records":0', '"records":1')
        session.execute(sa.update(LedgerEntry).values(body=changed))
    page = officer.post(path)
    assert page.status_code == 200
    assert "The ledger does not hold." in page.text
    assert f"Model {learned['id']}, ledger entry 1: its body is not what was hashed." in page.text


def test_pages_are_hidden_without_their_scopes(somebody_with: SomebodyWith, learned: dict[str, Any]) -> None:
    """A user who may read models but not accounts sees neither the curve nor the ledger on the model's page."""
    path = f"/admin/models/{learned['id']}"
    reader = somebody_with(Scope.MODELS_READ)
    page = reader.get(path).text
    assert "Versions" in page
    for hidden in ("Residual influence, step by step", "Verify now", "What-if: more requests", "Retrain"):
        assert hidden not in page


def test_retraining_needs_a_form_of_the_dashboard(officer: Browser, learned: dict[str, Any]) -> None:
    """A form on another site cannot request retraining."""
    assert officer.post(f"/admin/models/{learned['id']}/relearn", csrf="0" * 64).status_code == 403
    assert officer.post(f"/admin/models/{learned['id']}/relearn", origin="https://evil.example").status_code == 403


def test_a_model_is_retired(
    officer: Browser, somebody_with: SomebodyWith, learned: dict[str, Any], forget: Make, work: Work
) -> None:
    """A user who may change models can retire a model from its page unless a request is waiting for it. The button then
    disappears."""
    path = f"/admin/models/{learned['id']}"
    assert "Retire it" not in somebody_with(Scope.MODELS_READ).get(path).text
    assert "Retire it" in officer.get(path).text
    forget("p1")
    refused = officer.post(f"{path}/retire")
    assert refused.status_code == 409
    assert "1 deletion request waits" in refused.text
    work()
    answer = officer.post(f"{path}/retire")
    assert answer.status_code == 303
    page = officer.get(answer.headers["location"]).text
    assert "Model retired." in page
    assert "no version yet" not in page
    assert "Its weights are destroyed." in page
    assert not [button for button in ("Retire it", "Retrain it", "Run a canary test") if button in page]
    assert "Retired" in officer.get("/admin/models").text
    dataset = f"/admin/datasets/{learned['dataset_id']}"
    assert "Retire it" in officer.get(dataset).text
    page = officer.get(officer.post(f"{dataset}/retire").headers["location"]).text
    assert "Dataset retired." in page
    assert "nothing is left of its rows" in page
    assert not [button for button in ("Retire it", "New model", "Add rows") if button in page]
