"""The retraining plan, and the webhook that announces it."""

import datetime
import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import strategies as st

from app.db import now
from app.db.tables import DeletionRequest
from app.features.attested import jobs
from app.features.attested.service import WaitInterval, plan
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from tests.features.attested.conftest import AttestedTrainer

New = Callable[..., dict[str, Any]]
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def at(day: int) -> datetime.datetime:
    return START + day * DAY


@hypothesis.given(st.lists(st.tuples(st.integers(0, 7), st.integers(-2, 7)), max_size=6))
def test_the_plan_has_the_fewest_retraining_runs(intervals: list[tuple[int, int]]) -> None:
    """The plan serves every waiting request between the request's earliest and latest dates, or as early as possible if
    the request is already late. An exhaustive search finds no plan with fewer retraining runs."""
    waits = [WaitInterval(asked_at=at(asked), latest_at=at(asked + length)) for asked, length in intervals]
    planned = plan(waits, at=at(2))
    allowed = [(max(one.asked_at, at(2)), max(one.asked_at, one.latest_at, at(2))) for one in waits]

    def serves(times: tuple[datetime.datetime, ...]) -> bool:
        return all(any(start <= time <= end for time in times) for start, end in allowed)

    times = tuple(one.latest_at for one in planned)
    assert serves(times)
    assert list(times) == sorted(times)
    every = [at(day) for day in range(2, 16)]
    assert not any(serves(fewer) for fewer in itertools.combinations(every, max(0, len(times) - 1))) or not times
    assert sum(one.num_waiting for one in planned) == len(waits)
    assert any(one.late for one in planned) == any(
        wait.latest_at < start for wait, (start, _) in zip(waits, allowed, strict=True)
    )


def test_a_trainer_is_notified_of_the_latest_date(
    installation: Installation,
    trainer: AttestedTrainer,
    forget: New,
    deliveries: Callable[[], list[WebhookDelivery]],
) -> None:
    """One webhook announces the latest date by which to retrain for all waiting requests. Another webhook is sent only
    if that date becomes earlier or can no longer be met. After a manifest has been accepted, the next request to wait
    is announced by a new webhook."""

    def told() -> list[dict[str, Any]]:
        jobs.announce_retrainings(installation)
        rows = [json.loads(row.letter.body) for row in deliveries() if row.event == "retraining_due"]
        return [row["data"] for row in rows]

    assert told() == []
    request = forget("ada")
    [first] = told()
    state = trainer.state()
    assert (first["num_waiting"], first["num_planned"], first["late"]) == (1, 1, False)
    assert first["retraining_id"] == state["retraining_id"]
    latest = datetime.datetime.fromisoformat(first["latest_at"])
    assert latest == datetime.datetime.fromisoformat(request["due_at"]) - 3 * DAY
    assert datetime.datetime.fromisoformat(state["next_retraining"]["latest_at"]) == latest
    forget("bob")
    assert len(told()) == 1
    for until, late in ((5 * DAY, False), (DAY, True), (DAY / 2, True)):
        with installation.database.writing() as session:
            session.get_one(DeletionRequest, request["id"]).deadline = now(session) + until
        assert told()[-1]["late"] is late
    assert len(told()) == 3
    trainer.retrain("eve")
    assert len(told()) == 3
    forget("cleo")
    assert told()[-1]["retraining_id"] == trainer.state()["retraining_id"]
    body = json.dumps(told())
    # A word boundary is needed, because an id can contain these letters.
    assert not re.search(r"\bada\b", body)
    assert request["id"] not in body


def test_a_later_grace_period_needs_a_second_retraining_run(
    installation: Installation, policy: Callable[..., None], trainer: AttestedTrainer, forget: New
) -> None:
    """A request whose grace period ends after the latest retraining date of the other requests is planned for a second
    retraining run."""
    request = forget("ada")
    with installation.database.writing() as session:
        session.get_one(DeletionRequest, request["id"]).deadline = now(session) + 10 * DAY
    forget("bob")
    assert [one["num_waiting"] for one in trainer.state()["planned"]] == [2]
    policy(grace_seconds=8 * 86400)
    forget("cleo")
    assert [one["num_waiting"] for one in trainer.state()["planned"]] == [2, 1]
