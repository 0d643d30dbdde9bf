"""Runs on pages: current and failed ones with advice, and the workers."""

import os
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.config import Settings
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def model(new_dataset: Make, new_model: Make) -> dict[str, Any]:
    """Create a model that is waiting for a worker, with noise so small that forgetting takes steps."""
    return new_model(new_dataset()["id"], noise_scale=0.02)


def _claimed(installation: Installation) -> str:
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="blue", lease_seconds=60, max_requests=1)
    assert claimed is not None
    return claimed.run_id


def test_an_installation_without_runs_is_explained(officer: Browser) -> None:
    """The page explains why there are no runs and no workers."""
    page = officer.get("/admin/runs").text
    assert "No runs yet" in page
    assert "No worker has responded for a minute" in page


def test_a_current_run_is_shown(
    officer: Browser, installation: Installation, model: dict[str, Any], work: Callable[[], int]
) -> None:
    """The list and the run's own page show a run with its worker and its steps. The list can be filtered to find the
    run."""
    run_id = _claimed(installation)
    page = officer.get("/admin/runs").text
    assert f"/admin/runs/{run_id}" in page
    assert "<code>blue</code>" in page
    assert "<progress" in officer.get(f"/admin/runs/{run_id}").text
    assert "not known yet when it ends" in officer.get(f"/admin/runs/{run_id}").text
    with installation.database.writing() as session:
        unlearning.renew(session, run_id=run_id, steps_done=1, lease_seconds=60)
    for path in ("/admin/runs", f"/admin/runs/{run_id}", f"/admin/models/{model['id']}"):
        assert " left, until <time" in officer.get(path).text, path
    assert "Running" in officer.get(f"/admin/runs/{run_id}/live").text
    assert run_id in officer.get(f"/admin/runs/live?status=running&model_id={model['id']}").text
    assert "No matching runs" in officer.get("/admin/runs?status=published").text
    assert officer.get("/admin/runs?status=lost").status_code == 422


def test_a_request_shows_the_expected_end_of_its_run(
    officer: Browser, installation: Installation, model: dict[str, Any], forget: Make, work: Callable[[], int]
) -> None:
    """While a model forgets a person, the request's page shows when the run is expected to end."""
    work()
    request_id = forget("p1")["id"]
    run_id = _claimed(installation)
    page = officer.get(f"/admin/requests/{request_id}").text
    assert run_id in page
    assert " left, until <time" in page


def test_the_queue_shows_what_is_due_and_why(
    officer: Browser,
    somebody_with: Callable[..., Browser],
    installation: Installation,
    model: dict[str, Any],
    forget: Make,
    work: Callable[[], int],
    get: Callable[[str], Any],
) -> None:
    """The queue lists each model that is due, with the rule that makes it due, the waiting time and the deadline. It
    also shows the running workers and the number of runs per hour. Only users who may read accounts see a link to the
    queue."""
    [learns] = get("/queue")["next"]
    assert (learns["model_ids"], [due["rule"] for due in learns["due"]]) == ([model["id"]], ["learn"])
    assert "A model waits to be learned" in officer.get("/admin/runs/queue").text
    work()
    assert "Nothing is due" in officer.get("/admin/runs/queue").text
    request = forget("p1")
    [found] = get("/queue")["next"]
    [due] = found["due"]
    assert (due["rule"], due["first_due_at"], found["urgent"]) == ("requested", request["due_at"], False)
    assert due["since"] is not None
    page = officer.get("/admin/runs/queue").text
    assert "no run has started on their requests" in page
    assert f"/admin/models/{model['id']}" in page
    run_id = _claimed(installation)
    queue_now = get("/queue")
    assert ([run["id"] for run in queue_now["running"]], queue_now["next"]) == ([run_id], [])
    assert "<code>blue</code>" in officer.get("/admin/runs/queue/live").text
    assert sum(hour["published"] for hour in queue_now["hours"]) == 1
    assert len(queue_now["hours"]) == 24
    assert 'href="/admin/runs/queue"' in officer.get("/admin/runs").text
    reader = somebody_with(Scope.MODELS_READ)
    assert 'href="/admin/runs/queue"' not in reader.get("/admin/runs").text


def test_a_failed_run_is_explained(officer: Browser, installation: Installation, model: dict[str, Any]) -> None:
    """The list of runs groups failures by reason and gives an explanation and advice for each. The run's page shows
    both too."""
    run_id = _claimed(installation)
    with installation.database.writing() as session:
        unlearning.fail(session, run_id=run_id, error_code="run_process_died")
    for path in ("/admin/runs", f"/admin/runs/{run_id}"):
        page = officer.get(path).text
        assert "run_process_died" in page
        assert "Give the worker more memory" in page


def test_hosts_show_their_last_heartbeat(officer: Browser, settings: Settings) -> None:
    """Each host is listed with the latest heartbeat of its workers."""
    folder = settings.data_dir / "workers"
    folder.mkdir(exist_ok=True)
    for name, seconds_ago in (("blue", 1.0), ("green", 300.0)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - seconds_ago,) * 2)
    page = officer.get("/admin/runs").text
    assert "No worker has responded" not in page
    assert page.index(">Online<") < page.index(">Silent<")


def test_an_unknown_run_is_a_404(officer: Browser) -> None:
    """An unknown run returns a 404 page."""
    assert officer.get("/admin/runs/run_none").status_code == 404


def test_waiting_requests_are_hidden_without_the_scope(somebody_with: Callable[..., Browser]) -> None:
    """A caller who may only read models sees the runs but no waiting requests."""
    page = somebody_with(Scope.MODELS_READ).get("/admin/runs").text
    assert "Failed runs" in page
    assert "Oldest waiting" not in page


def test_a_run_is_cancelled(
    officer: Browser, somebody_with: Callable[..., Browser], installation: Installation, model: dict[str, Any]
) -> None:
    """A training run can be cancelled on its page. The model's page explains what this means and what to do next."""
    path = f"/admin/runs/{_claimed(installation)}"
    assert "Cancel it" not in somebody_with(Scope.MODELS_READ).get(path).text
    assert "Cancel it" in officer.get(path).text
    page = officer.get(officer.post(f"{path}/cancel").headers["location"]).text
    assert "Cancelled" in page
    assert ">Abgebrochen<" in officer.get(path, **{"Accept-Language": "de"}).text
    assert re.search(r'role="status">The run is cancelled.<', page)
    assert "Cancel it" not in page
    assert "Its first learning was cancelled" in officer.get(f"/admin/models/{model['id']}").text


def test_model_names_are_read_in_one_statement(
    officer: Browser, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """For a list with several models' runs, all of the models' names are read in one SQL statement."""
    for name in ("first", "second", "third"):
        new_model(new_dataset()["id"], name=name)
    work()
    reads: list[str] = []

    def heard(*said: Any) -> None:
        statement = " ".join(said[2].split())
        if statement.startswith("SELECT models.id, models.name FROM models"):
            reads.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", heard)
    try:
        page = officer.get("/admin/runs").text
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", heard)
    assert all(name in page for name in ("first", "second", "third"))
    assert len(reads) == 1
