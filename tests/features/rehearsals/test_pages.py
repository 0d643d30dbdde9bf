"""Pages of rehearsals: requested on the model's page, and read as tables and curves."""

from collections.abc import Callable
from typing import Any

from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]
Work = Callable[[], int]


def test_a_rehearsal_is_requested_and_shown(
    officer: Browser,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Work,
) -> None:
    """The form explains invalid input. The page shows the rehearsal while it is waiting, while it is running, and
    finally with tables and curves. Once a measured person has been erased, the report is no longer shown."""
    test = new_dataset("others", rows=40, seed=3, first=1000)["id"]
    model = new_model(new_dataset()["id"], noise_scale=0.02, evaluation_dataset_id=test)["id"]
    place = f"/admin/models/{model}/rehearsals"
    assert "There was no rehearsal yet" in officer.get(place).text
    assert "Rehearse …" not in officer.get(f"/admin/models/{model}").text
    work()
    assert "Rehearse …" in officer.get(f"/admin/models/{model}").text
    assert officer.post(place, people="9").status_code == 422
    refused = officer.post(place, people="31")
    assert refused.status_code == 409
    assert "at most half of the people" in refused.text
    one = officer.post(place, people="10").headers["location"]
    page = officer.get(one).text
    assert ">Waiting<" in page
    assert f'hx-get="{one}/live"' in page
    with installation.database.writing() as session:
        queue.claim(session, worker="w", lease_seconds=30, max_requests=10)
    assert "Steps of both copies" in officer.get(f"{one}/live").text
    with installation.database.writing() as session:
        unlearning.take_back(session, worker="w")
    assert work() == 1
    page = officer.get(one).text
    for said in (
        "Copy that forgot them",
        "Retain set",
        "about 25 people",
        "Attack, AUC",
        "Loss while the copy forgets",
    ):
        assert said in page
    assert page.count("data-plot=") == 2
    assert "no certificate covers them" in page
    assert one in officer.get(f"/admin/models/{model}").text
    forget("p1")
    work()
    assert "so the report is gone" in officer.get(one).text


def test_a_failed_rehearsal_is_explained(
    officer: Browser, installation: Installation, new_dataset: Make, new_model: Make, work: Work
) -> None:
    """The page states that a rehearsal failed, why it failed, and that the model is unchanged."""
    model = new_model(new_dataset()["id"])["id"]
    work()
    one = officer.post(f"/admin/models/{model}/rehearsals", people="10").headers["location"]
    for _ in range(3):
        with installation.database.writing() as session:
            claimed = queue.claim(session, worker="w", lease_seconds=30, max_requests=10)
            assert claimed is not None
            unlearning.fail(session, run_id=claimed.run_id, error_code="run_process_died")
    page = officer.get(one).text
    assert "failed three times" in page
    assert "run_process_died" in page


def test_reports_are_hidden_without_the_scope(
    somebody_with: Callable[..., Browser], new_dataset: Make, new_model: Make, work: Work
) -> None:
    """A user without accounting:read can request a rehearsal and see its state, but neither a link to the list of
    rehearsals nor a report."""
    model = new_model(new_dataset()["id"])["id"]
    work()
    engineer = somebody_with(Scope.MODELS_READ, Scope.MODELS_WRITE)
    asked = engineer.post(f"/admin/models/{model}/rehearsals", people="10").headers["location"]
    assert "The rehearsal starts as soon as" in engineer.get(asked).text
    assert "All rehearsals" not in engineer.get(asked).text
