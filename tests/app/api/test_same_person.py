"""Several requests about one person, and how each reports rows that another request erased."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lethe.contract.sets import Scope

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def approve(gateway: TestClient) -> Callable[[str], dict[str, Any]]:
    """Approve a request, and return it."""

    def approved(request_id: str) -> dict[str, Any]:
        answer = gateway.post(f"/v1/deletion-requests/{request_id}/approve")
        assert answer.status_code == 200
        return answer.json()  # type: ignore[no-any-return]

    return approved


def test_a_request_names_the_request_that_erased_its_rows(
    get: Get,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    approve: Callable[[str], dict[str, Any]],
    key_with: Callable[..., dict[str, str]],
) -> None:
    """Of two requests in review about one person, the second is approved and erases the rows. When the first is
    approved later, it refers to the second and gets no statement that nothing was held. A discreet caller sees neither
    this reference nor the outcome."""
    new_model(new_dataset()["id"])
    work()
    first, second = (forget("p1", identity_verified=False)["id"] for _ in range(2))
    approve(second)
    work()
    assert get(f"/deletion-requests/{second}")["outcome"] == "forgotten"
    late = approve(first)
    assert (late["status"], late["outcome"], late["erased_by"]) == ("completed", "erased_already", second)
    proof = get(f"/deletion-requests/{first}/certificate")
    assert (proof["certificates"], proof["nothing_held"]) == ([], None)
    [certificate] = get(f"/deletion-requests/{second}/certificate")["certificates"]
    assert certificate["statement"]["request"]["id"] == second
    seen = gateway.get(f"/v1/deletion-requests/{first}", headers=key_with(Scope.REQUESTS_READ)).json()
    assert (seen["outcome"], seen["erased_by"]) == (None, None)


@pytest.mark.parametrize(("days_ago", "outcome"), [(0, "nothing_held"), (3, "erased_already")])
def test_a_request_entered_late_counts_from_its_receipt(
    new_dataset: Make, forget: Make, work: Callable[[], int], days_ago: int, outcome: str
) -> None:
    """A request that was received before an erasure but entered after it counts as a request about held rows. A request
    received after the erasure counts as a request about a person for whom nothing was held."""
    new_dataset()
    erased = forget("p1")["id"]
    work()
    received = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days_ago)
    entered = forget("p1", submitted_at=received.isoformat())
    assert (entered["outcome"], entered["erased_by"]) == (outcome, erased if days_ago else None)


def test_an_erasure_satisfies_alias_requests(new_dataset: Make, forget: Make, work: Callable[[], int]) -> None:
    """An erasure also satisfies a later request about one of the person's aliases, but not a request about another
    dataset."""
    first, other = new_dataset()["id"], new_dataset()["id"]
    received = datetime.datetime.now(datetime.UTC).isoformat()
    erased = forget("nickname", aliases=["p1"], dataset_ids=[first])["id"]
    work()
    assert forget("p1", submitted_at=received, dataset_ids=[first])["erased_by"] == erased
    assert forget("p0_unknown", submitted_at=received)["outcome"] == "nothing_held"
    assert forget("p1", submitted_at=received, dataset_ids=[other])["outcome"] != "erased_already"
