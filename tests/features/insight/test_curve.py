"""The curve of a real model, compared with its ledger and its certificates."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.accounting import repository
from app.db.tables import Model
from app.features.insight import curve
from app.features.insight.curve import Segment
from app.installations import Installation

Make = Callable[..., dict[str, Any]]


def life(session: Session, model_id: str, *, points: int = 30, limit: int = 100, before: int | None = None) -> Any:
    return curve.segments(session, session.get_one(Model, model_id), points=points, limit=limit, before=before)


def epsilon(stated: list[dict[str, Any]], notion: str) -> float:
    [found] = [g["epsilon"] for g in stated if g["notion"] == notion]
    return float(found)


@pytest.fixture
def lived(gateway: Any, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a model that was trained, forgot a person, was retrained, and then forgot two people together. A second
    model shares its data."""
    dataset = new_dataset(rows=60, rows_each=2)
    model = new_model(dataset["id"], noise_scale=0.05)
    new_model(dataset["id"], noise_scale=0.05)
    work()
    forget("p3")
    work()
    gateway.post(f"/v1/models/{model['id']}/relearn")
    work()
    forget("p4")
    forget("p5")
    work()
    return model


def test_run_ends_match_ledger_and_certificates(
    installation: Installation, lived: dict[str, Any], get: Callable[[str], Any]
) -> None:
    """The last point of each run has the same epsilons and chain state as the run's ledger entry, and the first point
    continues the previous run. For each batch, `deletion` and `adaptive` match the batch's certificates to the last
    digit."""
    with installation.database.reading() as session:
        segments, earlier = life(session, lived["id"])
        bodies = [json.loads(entry.body) for entry in repository.entries(session, model_id=lived["id"])]
    assert earlier is None
    assert [segment.entry for segment in segments] == bodies[::-1]
    assert [body["kind"] for body in bodies] == ["learn", "unlearn", "relearn", "unlearn"]
    steps = 0
    for segment, body in zip(segments[::-1], bodies, strict=True):
        last = segment.points[-1]
        assert segment.steps_before == steps
        assert last.step == body["steps"]
        assert last.influence == body["chain"]["influence"]
        assert last.presence == body["chain"]["presence"]
        assert last.noise_variance == body["chain"]["variance"]
        assert last.epsilon.unlearning == epsilon(body["guarantees"], "unlearning")
        assert last.epsilon.release == epsilon(body["guarantees"], "release")
        steps += body["steps"]
    by_version: dict[int, Segment] = {segment.entry["version"]: segment for segment in segments}
    seen = 0
    for request in get("/deletion-requests")["items"]:
        for certificate in get(f"/deletion-requests/{request['id']}/certificate")["certificates"]:
            if certificate["model_id"] == lived["id"]:
                segment = by_version[certificate["version"]]
                stated = certificate["statement"]["guarantees"]
                assert segment.largest == 2
                assert segment.adaptive is not None
                assert segment.points[-1].epsilon.deletion == epsilon(stated, "deletion")
                assert segment.adaptive.epsilon == epsilon(stated, "adaptive")
                seen += 1
    assert seen == 3


def test_pages_cover_the_whole_life(installation: Installation, lived: dict[str, Any]) -> None:
    """The curve's pages start with the newest run and together cover the model's whole life. A run's points do not
    depend on the page size. The `adaptive` epsilon of a record that is still in the dataset never decreases, even when
    the model is retrained."""
    with installation.database.reading() as session:
        whole, _ = life(session, lived["id"])
        paged, before = [], None
        while True:
            page, before = life(session, lived["id"], limit=1, before=before)
            paged += page
            if before is None:
                break
    assert paged == whole
    spent = [point.epsilon.adaptive for segment in whole[::-1] for point in segment.points]
    assert spent == sorted(spent)


def test_exports_are_counted(
    installation: Installation, gateway: Any, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """The curve states how often each version was exported."""
    model = new_model(new_dataset()["id"])
    work()
    for _ in range(2):
        assert gateway.get(f"/v1/models/{model['id']}/versions/1/weights").status_code == 200
    with installation.database.reading() as session:
        [segment], _ = life(session, model["id"])
    assert segment.exports == 2


def test_a_model_without_versions_has_no_curve(installation: Installation, new_dataset: Make, new_model: Make) -> None:
    """A model that has not finished its first training has no curve."""
    model = new_model(new_dataset()["id"])
    with installation.database.reading() as session:
        assert life(session, model["id"]) == ([], None)
