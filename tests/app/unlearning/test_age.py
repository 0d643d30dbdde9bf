"""The cost of a run does not grow with its model's age or with the number of rows."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.accounting import certificates
from app.db import now
from app.db.tables import Certificate, Model, Run, Version
from app.installations import Installation

Make = Callable[..., dict[str, Any]]
AGE = 2000


def grow_old(installation: Installation, model_id: str) -> None:
    """Turn the model's only version into the last of many versions, each published by a separate run."""
    with installation.database.writing() as session:
        version = session.scalars(sa.select(Version).where(Version.model_id == model_id)).one()
        run, model = session.get_one(Run, version.run_id), session.get_one(Model, model_id)
        version.number = model.live_version = AGE + 1
        run.kind, run.first_step = "unlearn", AGE * run.steps_total
        columns = {column.key: getattr(run, column.key) for column in sa.inspect(Run).column_attrs}
        made = [
            columns
            | {
                "id": f"run_{number}",
                "version_id": f"ver_{number}",
                "kind": "learn" if number == 1 else "unlearn",
                "first_step": (number - 1) * run.steps_total,
            }
            for number in range(1, AGE + 1)
        ]
        of_version = {"model_id": model_id, "status": "destroyed", "revision": 0, "weights_sha256": "0" * 64}
        session.flush()
        session.execute(sa.insert(Run), made)
        session.execute(
            sa.insert(Version),
            [
                of_version
                | {"id": f"ver_{number}", "run_id": f"run_{number}", "number": number, "metrics": {}}
                | {"published_at": now(session)}
                for number in range(1, AGE + 1)
            ],
        )


@pytest.fixture
def forgotten(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> Callable[..., tuple[int, str]]:
    """Return a function that forgets a person in a dataset with the given number of rows, and returns the number of
    executed statements and the signed certificate."""

    def measured(*, rows: int, is_old: bool = False) -> tuple[int, str]:
        dataset = new_dataset(rows=rows)
        model = new_model(dataset["id"], noise_scale=0.3)
        work()
        if is_old:
            grow_old(installation, model["id"])
        request = forget("p1", dataset_ids=[dataset["id"]])
        statements: list[str] = []

        def heard(*said: Any) -> None:
            if threading.current_thread() is threading.main_thread():  # without the periodic heartbeats
                statements.append(said[2])

        sa.event.listen(installation.database.engine, "before_cursor_execute", heard)
        work()
        sa.event.remove(installation.database.engine, "before_cursor_execute", heard)
        with installation.database.reading() as session:
            query = sa.select(Certificate.jws).where(Certificate.request_id == request["id"])
            return len(statements), session.scalars(query).one()

    return measured


def test_statements_of_a_run_do_not_grow_with_history(forgotten: Callable[..., tuple[int, str]]) -> None:
    """Neither two thousand earlier requests nor ten times as many rows increase the number of statements that a run
    executes. The run's signed statement grows by only a few hundred bytes, which describe the runs that still affect
    the guarantees."""
    asked, young = forgotten(rows=30)
    of_many, _ = forgotten(rows=300)
    of_old, old = forgotten(rows=30, is_old=True)
    assert asked <= 170
    assert max(of_many, of_old) <= asked + 20  # the gateway's periodic jobs may have recorded a few events before it
    assert len(old) < len(young) + 2000
    evidence = certificates.statement_in(old)["evidence"]
    [seen] = evidence["exposures"].values()
    assert sum(count for _, count in seen["releases"]) == AGE + 1
    assert len(evidence["history"]) < 64
