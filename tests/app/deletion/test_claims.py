"""Claims by workers when one person has several requests."""

import datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access.service import DEFAULT_TENANT
from app.db import now
from app.db.tables import Dataset, DeletionRequest, Model, RequestModel
from app.deletion import claims, completion, repository
from app.installations import Installation
from lethe.contract.tenants import Policy
from tests.app.deletion import people
from tests.app.deletion.people import OFFICER
from tests.counted import statements_to

POLICY = Policy(grace_seconds=3600)
HALF = datetime.timedelta(minutes=30)


def learn(session: Session, *model_ids: str) -> None:
    """Create models that were trained on the data of the people in the dataset."""
    for model_id in model_ids:
        session.add(
            Model(
                id=model_id,
                tenant_id=DEFAULT_TENANT,
                name=model_id,
                dataset_id="ds_1",
                mechanism={},
                epsilon=1.0,
                delta=1e-5,
                status="live",
                live_version=1,
                created_at=now(session),
            )
        )


def ask(installation: Installation) -> str:
    with installation.database.writing(by=OFFICER) as session:
        return people.ask(session, "sub_held", POLICY).request.id


def wait(installation: Installation, passed: datetime.timedelta) -> None:
    with installation.database.writing() as session:
        people.later(session, passed)


def erase(session: Session) -> None:
    """Claim and confirm erasures, as a worker does before it runs a model."""
    dataset = session.get_one(Dataset, "ds_1")
    claims.claim_erasures(session, dataset=dataset, limit=10)
    session.flush()
    claims.confirm_erasures(session, dataset=dataset)


def forget(session: Session, request_id: str, model_id: str) -> None:
    owed = session.get_one(RequestModel, (request_id, model_id))
    claims.complete_model(session, [(owed, session.get_one(DeletionRequest, request_id), "crt")], version=2)


def statuses(installation: Installation) -> dict[str, str]:
    with installation.database.reading() as session:
        return {one.id: one.status for one in session.scalars(sa.select(DeletionRequest))}


def owed(installation: Installation, request_id: str) -> dict[str, str]:
    with installation.database.reading() as session:
        found = session.scalars(sa.select(RequestModel).where(RequestModel.request_id == request_id))
        return {one.model_id: one.status for one in found}


@pytest.mark.parametrize("served", [False, True])
def test_a_second_request_waits_for_models_trained_on_the_person(installation: Installation, served: bool) -> None:
    """If a request's grace period ends after an earlier request has erased the rows, the request waits for the models
    that were trained on the rows and have not yet forgotten them. If the earlier request has already completed, the
    later one completes at once."""
    with installation.database.writing(by=OFFICER) as session:
        people.obey(session, POLICY)
        people.hold(session, ["sub_held"])
        learn(session, "mdl_1", "mdl_2")
    first = ask(installation)
    wait(installation, HALF)
    second = ask(installation)
    wait(installation, HALF)
    with installation.database.writing() as session:
        erase(session)
        forget(session, first, "mdl_1")
        if served:
            forget(session, first, "mdl_2")
    wait(installation, HALF)
    with installation.database.writing() as session:
        erase(session)
        completion.settle(session)
    if served:
        assert statuses(installation) == {first: "completed", second: "completed"}
        assert owed(installation, second) == {}
        return
    assert statuses(installation) == {first: "running", second: "accepted"}
    assert owed(installation, second) == {"mdl_2": "pending"}
    with installation.database.writing() as session:
        forget(session, first, "mdl_2")
        forget(session, second, "mdl_2")
    assert statuses(installation) == {first: "completed", second: "completed"}


def test_a_second_request_completes_if_all_models_forgot_the_person(installation: Installation) -> None:
    """A second request completes as soon as it is claimed if all models of its dataset have already forgotten the
    person, even though the first request is still waiting for another dataset."""
    with installation.database.writing(by=OFFICER) as session:
        people.obey(session, POLICY)
        people.hold(session, ["sub_held"])
        people.hold(session, ["sub_held"], dataset_id="ds_2")
        learn(session, "mdl_1")
    first = ask(installation)
    wait(installation, HALF)
    with installation.database.writing(by=OFFICER) as session:
        second = people.ask(session, "sub_held", POLICY, dataset_ids=["ds_1"]).request.id
    wait(installation, HALF)
    with installation.database.writing() as session:
        erase(session)
        forget(session, first, "mdl_1")
    wait(installation, HALF)
    with installation.database.writing() as session:
        erase(session)
    assert statuses(installation) == {first: "running", second: "completed"}
    assert owed(installation, second) == {}


def test_a_run_serves_a_bounded_number_of_requests_about_one_person(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run serves a limited number of requests about one person. The remaining requests complete right afterwards
    without a run and refer to a request that the run served. The person is looked up only once for all of them."""
    monkeypatch.setattr(repository, "MAX_ALSO_THEIRS", 1)
    with installation.database.writing(by=OFFICER) as session:
        people.obey(session, POLICY)
        people.hold(session, ["sub_held"])
        learn(session, "mdl_1")
    asked = [ask(installation) for _ in range(12)]
    wait(installation, 2 * HALF)
    with installation.database.writing() as session:
        dataset = session.get_one(Dataset, "ds_1")
        claims.claim_erasures(session, dataset=dataset, limit=2)
        served = {one.id for one in session.scalars(sa.select(DeletionRequest)) if one.status == "running"}
        assert len(served) == 3
        claims.confirm_erasures(session, dataset=dataset)
        for request_id in served:
            forget(session, request_id, "mdl_1")
    with statements_to(installation.database.engine) as statements, installation.database.writing() as session:
        claims.claim_erasures(session, dataset=session.get_one(Dataset, "ds_1"), limit=100)
        assert not repository.unconfirmed_erasures(session, dataset_id="ds_1")
    assert sum(statement.count("UNION ALL") == 2 for statement in statements) == 1
    with installation.database.reading() as session:
        ended = {one.id: (one.outcome, one.erased_by) for one in session.scalars(sa.select(DeletionRequest))}
    assert [ended[request_id] for request_id in asked if request_id in served] == [("forgotten", None)] * 3
    others = {ended[request_id] for request_id in asked if request_id not in served}
    assert {(outcome, erased_by in served) for outcome, erased_by in others} == {("erased_already", True)}
