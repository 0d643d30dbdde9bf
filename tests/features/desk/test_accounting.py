"""Pages of accounts: what every dataset has spent, and which requests would make a model relearn."""

from collections.abc import Callable
from typing import Any

from app.features.desk.wording import at_most
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
SomebodyWith = Callable[..., Browser]


def test_empty_accounts_are_explained(officer: Browser, new_dataset: Make) -> None:
    """The pages show an empty state if there is no dataset or if no model has been trained on the dataset."""
    assert "No dataset yet" in officer.get("/admin/accounting").text
    dataset = new_dataset()
    assert f"/admin/accounting/datasets/{dataset['id']}" in officer.get("/admin/accounting").text
    assert "Nothing was learned" in officer.get(f"/admin/accounting/datasets/{dataset['id']}").text


def test_an_account_shows_spent_and_remaining_budget(
    officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Work, get: Get
) -> None:
    """A dataset's account shows the epsilon spent per record and how many more versions fit within a given budget."""
    dataset = new_dataset()["id"]
    new_model(dataset, name="churn")
    work()
    path = f"/admin/accounting/datasets/{dataset}"
    used = get(f"/accounting/datasets/{dataset}")["used"]["epsilon"]
    assert f"ε</button> ≤ {at_most(used)}" in officer.get(path).text
    assert "No run is due" in officer.get(path).text
    left = get(f"/accounting/datasets/{dataset}?adaptive_epsilon=500")["models"][0]["releases_left"]["count"]
    assert 'value="12000"' in officer.get(f"{path}?epsilon=12000").text
    page = officer.get(f"{path}?epsilon=500&delta=").text
    assert f"{left:,} more" in page
    assert "churn" in page
    assert "Exceeded" in officer.get(f"{path}?epsilon=0.001").text
    forget("p1")
    assert "for 1 record" in officer.get(path).text


def test_requests_that_force_retraining_are_named(
    officer: Browser, new_dataset: Make, new_model: Make, forget: Make, work: Work
) -> None:
    """The account names each open request that can only be served by retraining."""
    dataset = new_dataset(rows=300, rows_each=100)["id"]
    new_model(dataset, name="risk", noise_scale=0.01, learn_steps=8)
    work()
    request = forget("p1")
    page = officer.get(f"/admin/accounting/datasets/{dataset}").text
    assert "1 open request would make" in page
    assert f"/admin/requests/{request['id']}" in page
    assert "with 100 records" in page


def test_accounts_do_not_list_datasets_without_the_scope(somebody_with: SomebodyWith, new_dataset: Make) -> None:
    """A user who may not list datasets sees a message about the missing scope, and the account of any dataset that
    they name. The page of an unknown dataset returns 404."""
    dataset = new_dataset()["id"]
    accountant = somebody_with(Scope.ACCOUNTING_READ)
    assert "Your key may not list datasets" in accountant.get("/admin/accounting").text
    assert accountant.get(f"/admin/accounting/datasets/{dataset}").status_code == 200
    assert accountant.get("/admin/accounting/datasets/ds_0").status_code == 404


def test_an_invalid_budget_is_refused(officer: Browser) -> None:
    """If the requested budget is out of range, the response is a dashboard page with status 422."""
    for query in ("epsilon=-1", "epsilon=x", "delta=1", "delta=0"):
        assert officer.get(f"/admin/accounting?{query}").status_code == 422
