"""Pages of systems, and the systems of a case."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app.installations import Installation
from lethe.contract.sets import Scope
from tests.features.desk.browsing import Browser
from tests.features.systems.test_tasks import DAY, shift

New = Callable[..., dict[str, Any]]


def test_a_case_shows_its_systems_and_the_bundle(
    installation: Installation,
    officer: Browser,
    somebody_with: Callable[..., Browser],
    new_system: New,
    forget: New,
    task_of: New,
    gateway: TestClient,
) -> None:
    """A case's page shows one line per system, the headline and the bundle. The overview lists overdue tasks, which an
    officer can close. A reader who must not see whether data is held sees none of this."""
    new_system()
    request = forget("a")["id"]
    case = f"/admin/requests/{request}"
    assert f'hx-get="{case}/systems"' in officer.get(case).text
    fragment = officer.get(f"{case}/systems").text
    assert "Recommender" in fragment
    assert "Weakest grade: not reached" in fragment
    assert "Recommender" in officer.get("/admin/systems").text
    german = officer.get(f"{case}/systems", **{"Accept-Language": "de"}).text
    assert "Schwächster Grad: nicht erreicht" in german
    assert officer.get(f"{case}/bundle.json").json()["grade"] == "not_reached"
    assert "overdue" not in officer.get("/admin/system-tasks/overdue", **{"HX-Request": "true"}).text
    shift(installation, request, deadline=-DAY)
    assert "1 task of a system is overdue" in officer.get("/admin/system-tasks/overdue").text
    assert "system-tasks/overdue" in officer.get("/admin").text
    task = task_of(request)["id"]
    assert "Reason" in officer.get("/admin/systems").text
    assert officer.post(f"/admin/system-tasks/{task}/close", reason="").status_code == 422
    assert officer.post(f"/admin/system-tasks/{task}/close", reason="gone").status_code == 303
    assert task_of(request)["status"] == "closed"
    assert officer.post(f"/admin/system-tasks/{task}/close", reason="again").status_code == 303
    reader = somebody_with(Scope.REQUESTS_READ)
    assert "/systems" not in reader.get(case).text
