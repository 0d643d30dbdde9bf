"""Rehearsals: people drawn at random are forgotten on a scratch copy, which changes nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import Dataset, Record, Run, Table
from app.features.rehearsals import service as rehearsals
from app.features.rehearsals.tables import Rehearsal
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from tests.conftest import people
from worker import isolated

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
TWO = {"second": 5, "third": 6}
"""Seeds of further datasets, by name."""


@pytest.fixture
def model(new_dataset: Make, new_model: Make, work: Work) -> dict[str, Any]:
    """Return a live model trained on 120 people with two rows each and measured on 80 other people."""
    test = new_dataset("others", rows=80, seed=3, first=1000)
    made = new_model(
        new_dataset(rows=240, rows_each=2)["id"],
        noise_scale=0.02,
        evaluation_dataset_id=test["id"],
        audit={"lanes": 64},
    )
    assert work() == 1
    return made


def rehearse(gateway: TestClient, model: dict[str, Any], people: int = 12) -> dict[str, Any]:
    answer = gateway.post(f"/v1/models/{model['id']}/rehearsals", json={"people": people})
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/v1/models/{model['id']}/rehearsals/{made['id']}"
    assert (made["status"], made["report"]) == ("waiting", None)
    return made


def state(installation: Installation, get: Get, model: dict[str, Any]) -> dict[str, Any]:
    """Return everything that a rehearsal must leave unchanged."""
    with installation.database.reading() as session:
        digests = session.scalars(sa.select(Dataset.digest).order_by(Dataset.id)).all()
        whose = session.execute(sa.select(Record.__table__)).all()
    [version] = get(f"/models/{model['id']}/versions")["items"]
    ledger = get(f"/accounting/models/{model['id']}/ledger")
    weights = installation.weights.version_ids()
    return {"rows": (digests, whose), "version": version, "ledger": ledger, "weights": weights}


def test_a_rehearsal_reports_its_measurements(
    gateway: TestClient, installation: Installation, model: dict[str, Any], get: Get, work: Work
) -> None:
    """A report measures the model before the rehearsal, after forgetting and after retraining, each on the forgotten,
    retained and test rows. It also contains the results of the attack, the cost and the curve. The rehearsal changes
    neither the version and its weights nor the rows or the ledger."""
    before = state(installation, get, model)
    asked = rehearse(gateway, model, people=40)
    assert work() == 1
    assert state(installation, get, model) == before
    found = get(f"/models/{model['id']}/rehearsals/{asked['id']}")
    assert [one["id"] for one in get(f"/models/{model['id']}/rehearsals")["items"]] == [asked["id"]]
    assert (found["status"], found["progress"], found["error_code"]) == ("completed", None, None)
    report = found["report"]
    assert (report["version"], report["way"]) == (1, "unlearn")
    for name in ("before", "forgotten", "relearned"):
        sets = report[name]["sets"]
        assert [sets[one]["rows"] for one in ("forget", "retain", "test")] == [40, 40, 40]
        assert all(0.5 < sets[one]["accuracy"] <= 1 and 0 < sets[one]["loss"] < 0.7 for one in sets)
        assert 0 < report[name]["attack"]["auc"] < 1
    ran = get("/runs")["items"][0]
    assert (ran["id"], ran["kind"], ran["status"]) == (found["run_id"], "rehearsal", "published")
    efforts = [report[name]["effort"] for name in ("forgotten", "relearned")]
    assert sum(one["steps"] for one in efforts) == ran["steps_total"] == ran["steps_done"]
    assert efforts[0]["steps"] < efforts[1]["steps"] == model["mechanism"]["learn_steps"]
    assert all(one["seconds"] > 0 and one["passes"] > 0 for one in efforts)
    after, again = (report[name]["sets"]["forget"] for name in ("forgotten", "relearned"))
    assert abs(after["accuracy"] - again["accuracy"]) < 0.2
    assert abs(after["loss"] - again["loss"]) < 0.15
    curve = report["curve"]
    assert 2 < len(curve) <= 21
    assert [curve[0]["forget"], curve[-1]["retain"]] == [
        report["before"]["sets"]["forget"],
        report["forgotten"]["sets"]["retain"],
    ]
    steps = [one["steps"] for one in curve]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, efforts[0]["steps"])
    assert work() == 0


def test_a_rehearsal_stores_no_personal_data(
    gateway: TestClient,
    installation: Installation,
    model: dict[str, Any],
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Scratch copies never contain the drawn people's rows. Neither the database nor the log contains their ids or
    their rows' slots."""
    drawn: list[rehearsals.Drawn] = []
    seen: list[int] = []
    draw, run = rehearsals.draw, isolated.run

    def drawing(session: Any, **named: Any) -> rehearsals.Drawn:
        drawn.append(draw(session, **named))
        return drawn[-1]

    def running(*given: Any, **named: Any) -> isolated.IsolatedResult:
        ran = run(*given, **named)
        rows = named["rows"]
        rows.show([range(rows.shape.num_blocks)])
        seen.append(int(rows.features[list(drawn[0].forget)].any()))
        assert int(rows.features.any(axis=1).sum()) == 216
        return ran

    monkeypatch.setattr(rehearsals, "draw", drawing)
    monkeypatch.setattr(isolated, "run", running)
    with installation.database.reading() as session:
        records = dict(iter(session.execute(sa.select(Record.slot, Record.subject_ref))))
    rehearse(gateway, model)
    assert work() == 1
    assert seen == [0, 0]
    [found] = drawn
    refs = {records[slot] for slot in found.forget}
    assert (len(refs), len(found.forget)) == (12, 24)
    assert {records[slot] for slot in found.measured} == refs
    assert (len(found.measured), len({records[slot] for slot in found.retain} - refs)) == (12, 54)
    said = "".join(capfd.readouterr())
    with installation.database.reading() as session:
        for table in Table.metadata.sorted_tables:
            if table.name not in ("records", "request_aliases", "suppressions"):
                said += repr(session.execute(sa.select(table)).all())
    assert not [ref for ref in refs if ref in said]
    for slots in (list(found.forget), found.forget, found.measured, list(found.retain)):
        assert repr(slots)[1:-1] not in said


def test_a_request_runs_before_a_rehearsal(
    gateway: TestClient, model: dict[str, Any], forget: Make, get: Get, work: Work
) -> None:
    """If a request and a rehearsal are both waiting, the request runs first. A report is removed when one of the people
    it measured is erased."""
    asked = rehearse(gateway, model)
    forget("p3")
    assert work() == 2
    assert [run["kind"] for run in get("/runs")["items"]] == ["rehearsal", "unlearn", "learn"]
    found = get(f"/models/{model['id']}/rehearsals/{asked['id']}")
    assert found["report"]["version"] == 2
    assert found["report"]["before"]["sets"]["retain"]["rows"] == (119 - 12) // 2
    # The rehearsal was measured on this person.
    forget("p1003")
    work()
    found = get(f"/models/{model['id']}/rehearsals/{asked['id']}")
    assert (found["status"], found["report"]) == ("outdated", None)


def test_a_version_gets_no_second_report_while_a_request_is_waiting(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """While a request is waiting, the same version gets no second report, because the difference between the two
    reports could reveal the person's data. This holds even after the first report has been removed. The next version,
    which is trained without the person, can be rehearsed."""
    test = new_dataset("others", rows=40, seed=3, first=1000)
    batching = {"max_wait_seconds": 86400}
    model = new_model(new_dataset()["id"], noise_scale=0.02, batching=batching, evaluation_dataset_id=test["id"])
    assert work() == 1
    path = f"/v1/models/{model['id']}/rehearsals"
    asked = rehearse(gateway, model, people=10)
    assert work() == 1
    forget("p3")
    work()
    assert get(f"/models/{model['id']}")["live_version"] == 1
    refused = gateway.post(path, json={"people": 10}).json()
    assert refused["code"] == "rehearsal_done"
    assert asked["id"] in refused["detail"]
    forget("p1003")
    work()
    assert get(f"/models/{model['id']}/rehearsals/{asked['id']}")["status"] == "outdated"
    assert gateway.post(path, json={"people": 10}).json()["code"] == "rehearsal_done"
    assert gateway.post(f"/v1/models/{model['id']}/relearn").status_code == 202
    work()
    assert get(f"/models/{model['id']}")["live_version"] == 2
    rehearse(gateway, model, people=10)


def test_the_same_rows_have_one_report(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """Only one report is permitted for the same rows, whichever model it is about and even if that model has been
    deleted. Another report is permitted after rows have been erased."""
    dataset = new_dataset()["id"]
    first, second = (new_model(dataset, name=name, noise_scale=0.02) for name in ("first", "second"))
    assert work() == 2

    def refused() -> str:
        return str(gateway.post(f"/v1/models/{second['id']}/rehearsals", json={"people": 10}).json()["code"])

    asked = rehearse(gateway, first, people=10)
    assert refused() == "rehearsal_pending"
    assert work() == 1
    assert get(f"/models/{first['id']}/rehearsals/{asked['id']}")["status"] == "completed"
    assert refused() == "rehearsal_done"
    assert gateway.delete(f"/v1/models/{first['id']}").status_code == 200
    assert refused() == "rehearsal_done"
    forget("p3")
    assert work() == 1
    rehearse(gateway, second, people=10)
    assert work() == 1


def test_evaluation_rows_are_used_in_only_one_report(
    gateway: TestClient, model: dict[str, Any], new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """Until they change, the rows of an evaluation dataset are used in only one report. Once they have been used, a
    rehearsal of another model has no test set, and a model trained on these rows cannot be rehearsed."""
    tested_on = model["evaluation_dataset_id"]
    made = {"noise_scale": 0.02, "evaluation_dataset_id": tested_on}
    others = [new_model(new_dataset(name, seed=seed, first=2000 * seed)["id"], **made) for name, seed in TWO.items()]
    learner = new_model(tested_on, name="learner", noise_scale=0.02)
    assert work() == 3

    def tested(rehearsed: dict[str, Any]) -> list[bool]:
        asked = rehearse(gateway, rehearsed, people=10)
        assert work() == 1
        report = get(f"/models/{rehearsed['id']}/rehearsals/{asked['id']}")["report"]
        parts = [report[name] for name in ("before", "forgotten", "relearned")]
        return [part["sets"]["test"] is not None and part["attack"] is not None for part in parts]

    assert tested(model) == [True] * 3
    assert tested(others[0]) == [False] * 3
    refused = gateway.post(f"/v1/models/{learner['id']}/rehearsals", json={"people": 10})
    assert refused.json()["code"] == "rehearsal_done"
    forget("p1003")
    work()
    assert tested(others[1]) == [True] * 3


def test_people_with_waiting_requests_are_not_drawn(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """People with waiting requests are neither drawn nor measured in a rehearsal."""
    model = new_model(new_dataset(rows=40)["id"], noise_scale=0.02, batching={"max_wait_seconds": 86400})
    assert work() == 1
    for number in range(10):
        forget(f"p{number}")
    drawn: list[rehearsals.Drawn] = []
    draw = rehearsals.draw
    monkeypatch.setattr(rehearsals, "draw", lambda *given, **named: drawn.append(draw(*given, **named)) or drawn[-1])
    rehearse(gateway, model, people=10)
    with installation.database.reading() as session:
        slots = set(session.scalars(sa.select(Record.slot)))
    assert work() == 1
    [found] = drawn
    assert (len(found.forget), len(found.retain), found.test) == (10, 10, None)
    assert found.measured == found.forget
    assert len({*found.forget, *found.retain} & slots) == 20


def test_a_person_with_many_rows_counts_once(
    gateway: TestClient, installation: Installation, new_model: Make, work: Work
) -> None:
    """A person with hundreds of rows counts as one person in each set, and each rehearsal draws different people. Rows
    without a person count individually. If there are too few people, no test set is formed."""

    def uploaded(*subjects: str) -> str:
        form, files = {"name": "people", "classes": '["0", "1"]'}, {"file": ("people.npz", people(*subjects))}
        answer = gateway.post("/v1/datasets", data=form, files=files)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    learned = uploaded(*["many"] * 300, *(f"p{number}" for number in range(29)))
    few = uploaded(*["other"] * 50, *(f"q{number}" for number in range(18)))
    model = new_model(learned, noise_scale=0.02, evaluation_dataset_id=few)
    assert work() == 1
    rehearse(gateway, model, people=10)
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=30, max_requests=10)
    assert claimed is not None
    with installation.database.reading() as session:
        query = sa.select(Record.slot, Record.subject_ref).where(Record.dataset_id == learned)
        whose = dict(iter(session.execute(query)))
        found = [rehearsals.draw(session, run_id=claimed.run_id) for _ in range(20)]
    for drawn in found:
        refs = [whose[slot] for slot in (*drawn.measured, *drawn.retain)]
        assert len(refs) == len(set(refs)) == 20
        assert {whose[slot] for slot in drawn.forget} == set(refs[:10])
        assert (len(drawn.measured), drawn.test) == (10, None)
    assert len({drawn.retain for drawn in found}) == 20
    with installation.database.writing() as session:
        session.execute(sa.update(Record).where(Record.dataset_id == few).values(subject_ref=None))
        [one, other] = [rehearsals.draw(session, run_id=claimed.run_id).test for _ in range(2)]
    assert one is not None
    assert other is not None
    assert (len(set(one)), len(set(other))) == (34, 34)


def test_a_failing_rehearsal_is_attempted_three_times(
    gateway: TestClient,
    installation: Installation,
    model: dict[str, Any],
    get: Get,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failing rehearsal leaves nothing behind and is attempted up to three times. Then it is reported as failed, and
    the model is unchanged."""
    before = state(installation, get, model)
    asked = rehearse(gateway, model)
    again = gateway.post(f"/v1/models/{model['id']}/rehearsals", json={"people": 12})
    assert (again.status_code, again.json()["code"]) == (409, "rehearsal_pending")

    def died(*given: Any, **named: Any) -> isolated.IsolatedResult:
        raise isolated.ChainFailed(isolated.DIED)

    with monkeypatch.context() as patched:
        patched.setattr(isolated, "run", died)
        assert work() == 3
    found = get(f"/models/{model['id']}/rehearsals/{asked['id']}")
    assert (found["status"], found["error_code"], found["report"]) == ("failed", isolated.DIED, None)
    assert state(installation, get, model) == before
    assert (get(f"/models/{model['id']}")["status"], get(f"/models/{model['id']}")["error_code"]) == ("live", None)


def test_a_rehearsal_is_repeated_if_its_worker_dies(
    gateway: TestClient, installation: Installation, model: dict[str, Any], get: Get, work: Work
) -> None:
    """A rehearsal whose worker died is repeated."""
    asked = rehearse(gateway, model)
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="dies", lease_seconds=30, max_requests=10)
    assert claimed is not None
    shown = get(f"/models/{model['id']}/rehearsals/{asked['id']}")
    assert (shown["status"], shown["run_id"]) == ("running", claimed.run_id)
    assert shown["progress"]["steps_total"] == claimed.steps
    assert get(f"/models/{model['id']}")["status"] == "testing"
    with installation.database.writing() as session:
        assert unlearning.take_back(session, worker="dies") == 1
    assert work() == 1
    found = get(f"/models/{model['id']}/rehearsals/{asked['id']}")
    assert found["status"] == "completed"
    with installation.database.reading() as session:
        ended = session.execute(sa.select(Run.kind, Run.status).order_by(Run.started_at)).all()
    assert [tuple(one) for one in ended] == [
        ("learn", "published"),
        ("rehearsal", "abandoned"),
        ("rehearsal", "published"),
    ]


def test_a_rehearsal_ends_with_its_run_or_model(
    gateway: TestClient, installation: Installation, model: dict[str, Any], get: Get
) -> None:
    """A rehearsal ends when its run is cancelled, and is deleted when its model is retired."""
    asked = rehearse(gateway, model)
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=30, max_requests=10)
    assert claimed is not None
    assert gateway.post(f"/v1/runs/{claimed.run_id}/cancel").json()["status"] == "cancelled"
    assert get(f"/models/{model['id']}/rehearsals/{asked['id']}")["status"] == "cancelled"
    rehearse(gateway, model)
    assert gateway.delete(f"/v1/models/{model['id']}").status_code == 200
    with installation.database.reading() as session:
        assert session.scalars(sa.select(Rehearsal)).all() == []


def test_an_impossible_rehearsal_is_refused(
    gateway: TestClient, new_dataset: Make, new_model: Make, work: Work
) -> None:
    """A rehearsal is refused if the model is unknown or has no version, or if it asks for too few people or for more
    than half of the people."""
    model = new_model(new_dataset()["id"])
    path = f"/v1/models/{model['id']}/rehearsals"
    assert gateway.post(path, json={"people": 30}).json()["code"] == "model_not_live"
    assert work() == 1
    assert gateway.post(path, json={"people": 31}).json()["code"] == "rehearsal_too_large"
    assert gateway.post(path, json={"people": 9}).json()["code"] == "input_invalid"
    assert gateway.post("/v1/models/mdl_nothing/rehearsals", json={}).json()["code"] == "model_unknown"
    assert gateway.get(f"{path}/reh_nothing").json()["code"] == "rehearsal_unknown"
    few = new_model(new_dataset("few", rows=29, seed=5, first=100)["id"])
    assert work() == 1
    refused = gateway.post(f"/v1/models/{few['id']}/rehearsals", json={"people": 10}).json()
    assert refused["code"] == "rehearsal_too_large"
    assert gateway.post(path, json={"people": 30}).status_code == 202
