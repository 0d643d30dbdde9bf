"""Lineage: two integers decide which version carried a person."""

import datetime
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db import Actor
from app.db.tables import DeletionRequest, Erasure, Model, Run, Version
from app.features.lineage import service
from app.features.lineage.service import ModelLineage
from app.features.lineage.tables import Export
from app.installations import Installation
from tests.app.deletion.people import hold

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
REVISIONS = [0, 0, 1, 3, 3, 5]
"""Revisions at which the versions of a model were made, oldest first."""


def versions(session: Session, by: Actor, revisions: list[int], *, model_id: str = "mdl_1") -> None:
    session.add(
        Model(
            id=model_id,
            tenant_id=by.tenant_id,
            name="model",
            dataset_id="ds_1",
            mechanism={},
            epsilon=1.0,
            delta=0.1,
            status="live",
            live_version=len(revisions),
            created_at=NOW,
        )
    )
    session.flush()
    for number, revision in enumerate(revisions, start=1):
        run = Run(
            id=f"run_{model_id}_{number}",
            tenant_id=by.tenant_id,
            kind="unlearn",
            status="published",
            dataset_id="ds_1",
            model_id=model_id,
            revision=revision,
            version_id=f"ver_{model_id}_{number}",
            steps_total=1,
            steps_done=1,
            records=0,
            reason="requested",
            worker="test",
            lease_expires_at=NOW,
            started_at=NOW,
        )
        session.add(run)
        session.flush()
        live = number == len(revisions)
        session.add(
            Version(
                id=run.version_id,
                model_id=model_id,
                number=number,
                status="live" if live else "destroyed",
                run_id=run.id,
                revision=revision,
                weights_sha256=f"{number:064}",
                metrics={},
                published_at=NOW + datetime.timedelta(seconds=number),
                destroyed_at=None if live else NOW,
            )
        )
    session.flush()


def erased(session: Session, by: Actor, person: str, *, revision: int, num_records: int = 1) -> str:
    """Create a completed request for a person whose rows were erased at `revision`, and return its id."""
    request_id = f"dr_{person}_{revision}_{num_records}"
    session.add(
        DeletionRequest(
            id=request_id,
            tenant_id=by.tenant_id,
            subject_ref=person,
            regulation="gdpr",
            time_zone="UTC",
            status="completed",
            kept="request",
            discreet=False,
            submitted_at=NOW,
            due_at=NOW,
            deadline=NOW,
            created_at=NOW,
        )
    )
    session.flush()
    session.add(
        Erasure(
            id=f"era_{request_id}",
            request_id=request_id,
            dataset_id="ds_1",
            revision=revision,
            num_records=num_records,
            num_claimed=num_records,
            nulled_at=NOW,
            deadline=NOW,
            ready_at=NOW,
        )
    )
    session.flush()
    return request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """Tested fields of a person's lineage in the only model."""

    carried_in: list[int]
    first_without: int | None


def fed(found: list[ModelLineage]) -> Fed | None:
    if not found:
        return None
    [one] = found
    assert one.num_versions == len(one.versions)
    without = one.first_without
    return Fed(
        carried_in=sorted(version.number for version in one.versions),
        first_without=without.version.number if without else None,
    )


def test_versions_before_an_erasure_contained_the_person(installation: Installation, by: Actor) -> None:
    """Versions made before an erasure contained the person, and the first version made at or after it is the first
    without the person. While the rows are still stored, all versions contain the person."""
    with installation.database.writing(by=by) as session:
        hold(session, ["sub_there"])
        versions(session, by, REVISIONS)
        requests = {revision: erased(session, by, f"sub_{revision}", revision=revision) for revision in range(1, 8)}
    numbered = list(enumerate(REVISIONS, start=1))
    with installation.database.reading(by=by) as session:
        for revision, request_id in requests.items():
            expected = Fed(
                carried_in=[number for number, made_at in numbered if made_at < revision],
                first_without=next((number for number, made_at in numbered if made_at >= revision), None),
            )
            assert fed(service.of_person(session, subject_ref=f"sub_{revision}").models) == expected
            request = session.get_one(DeletionRequest, request_id)
            assert fed(service.of_request(session, request).models) == expected
        everything = Fed(carried_in=[number for number, _ in numbered], first_without=None)
        assert fed(service.of_person(session, subject_ref="sub_there").models) == everything
        assert service.of_person(session, subject_ref="sub_unknown").datasets == []


def test_a_request_without_rows_changes_nothing(installation: Installation, by: Actor) -> None:
    """If a later request finds no rows because they were already erased, the revision of the erasure stays the same."""
    with installation.database.writing(by=by) as session:
        hold(session, [])
        versions(session, by, REVISIONS)
        erased(session, by, "sub_1", revision=1)
        late = erased(session, by, "sub_1", revision=5, num_records=0)
    with installation.database.reading(by=by) as session:
        found = service.of_request(session, session.get_one(DeletionRequest, late))
        assert fed(found.models) == Fed(carried_in=[1, 2], first_without=3)
        assert [(one.records, one.erased_at) for one in found.datasets] == [(1, NOW)]


def test_long_lists_are_truncated_and_counted(installation: Installation, by: Actor) -> None:
    """Only the newest 500 versions and copies are listed, but all of them are counted. Copies of later versions are
    neither listed nor counted."""
    with installation.database.writing(by=by) as session:
        hold(session, [])
        versions(session, by, [0] * 503 + [1])
        erased(session, by, "sub_1", revision=1)
        session.add_all(
            Export(
                id=f"exp_{index}",
                tenant_id=by.tenant_id,
                model_id="mdl_1",
                version=504 if index % 2 else 7,
                api_key_id="key",
                at=NOW + datetime.timedelta(seconds=index),
            )
            for index in range(1010)
        )
    with installation.database.reading(by=by) as session:
        [found] = service.of_person(session, subject_ref="sub_1").models
    assert (found.num_versions, [one.number for one in found.versions]) == (503, list(range(503, 3, -1)))
    assert (found.num_copies_outside, len(found.copies_outside), {one.version for one in found.copies_outside}) == (
        505,
        500,
        {7},
    )
    assert found.copies_outside[0].id == "exp_1008"


def test_another_tenants_rows_are_not_found(installation: Installation, by: Actor) -> None:
    """For another tenant, the lineage contains no datasets and no models, whatever identifier is used."""
    with installation.database.writing(by=by) as session:
        hold(session, ["sub_there"])
        versions(session, by, REVISIONS)
        erased(session, by, "sub_1", revision=1)
    with installation.database.reading(by=Actor(tenant_id="ten_other", name="test")) as session:
        for person in ("sub_there", "sub_1"):
            found = service.of_person(session, subject_ref=person)
            assert (found.datasets, found.models) == ([], [])
