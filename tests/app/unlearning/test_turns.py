"""The order among tenants: near deadlines go first, then tenants alternate, and no request waits forever."""

import datetime

from hypothesis import given, strategies as st

from app.deletion.deadlines import BEFORE_THE_DEADLINE
from app.unlearning.turns import DueDataset, TenantShare, in_turn

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
HOUR = datetime.timedelta(hours=1)


def due(dataset_id: str, tenant_id: str, days: float | None, *, learning: float | None = None) -> DueDataset:
    """Return a dataset that is due in the given number of days."""
    return DueDataset(
        dataset_id=dataset_id,
        tenant_id=tenant_id,
        deadline=None if days is None else NOW + days * DAY,
        learning=None if learning is None else NOW + learning * DAY,
    )


def names(found: list[DueDataset]) -> list[str]:
    return [one.dataset_id for one in found]


def test_a_backlog_of_one_tenant_does_not_hold_up_another() -> None:
    """A tenant whose only dataset is due last is still served first or second, even if another tenant has fifty
    due datasets."""
    backlog = [due(f"a{number}", "a", 10 + number / 10) for number in range(50)]
    quiet = due("b0", "b", 30)
    ran_last = {"a": TenantShare(last_began_at=NOW - HOUR), "b": TenantShare(last_began_at=NOW - DAY)}
    assert names(in_turn([*backlog, quiet], ran_last, at=NOW))[0] == "b0"
    just_ran = {"a": TenantShare(last_began_at=NOW - DAY), "b": TenantShare(last_began_at=NOW - HOUR)}
    assert names(in_turn([*backlog, quiet], just_ran, at=NOW))[:3] == ["a0", "b0", "a1"]


def test_near_deadlines_go_first() -> None:
    """Datasets due within a week go before all others; among those, tenants alternate regardless of deadlines."""
    found = [due("a0", "a", 6), due("a1", "a", -1), due("a2", "a", 8), due("b0", "b", 7), due("b1", "b", 20)]
    ran = {"a": TenantShare(running=3, last_began_at=NOW)}
    assert names(in_turn(found, ran, at=NOW)) == ["b0", "a1", "a0", "b1", "a2"]
    overdue = [due(f"a{number}", "a", -20_000) for number in range(9)]
    assert names(in_turn([*overdue, due("b0", "b", 6)], {}, at=NOW)).index("b0") <= 1


def test_training_is_never_urgent() -> None:
    """A model whose retraining was requested long ago waits until its tenant is next, and then goes before the tenant's
    later deadlines."""
    found = [due("a0", "a", None, learning=-100), due("a1", "a", 20), due("b0", "b", 6)]
    assert names(in_turn(found, {}, at=NOW)) == ["b0", "a0", "a1"]


def test_the_tenant_with_the_fewest_workers_is_next() -> None:
    """A tenant without a running worker goes before a tenant with running workers, regardless of which had the last
    run."""
    found = [due("a0", "a", 9), due("b0", "b", 30), due("b1", "b", 31), due("b2", "b", 32)]
    ran = {"a": TenantShare(running=2, last_began_at=NOW - DAY), "b": TenantShare(last_began_at=NOW)}
    assert names(in_turn(found, ran, at=NOW)) == ["b0", "b1", "a0", "b2"]


anybody = st.sampled_from("abcd")
some_due = st.lists(st.tuples(anybody, st.floats(-5, 40)), max_size=20).map(
    lambda made: [due(f"{tenant_id}{number}", tenant_id, days) for number, (tenant_id, days) in enumerate(made)]
)
some_standings = st.dictionaries(
    anybody,
    st.builds(TenantShare, running=st.integers(0, 3), last_began_at=st.floats(0, 9).map(lambda days: NOW - days * DAY)),
)


@given(some_due, some_standings)
def test_the_order_is_complete_and_respects_deadlines(
    found: list[DueDataset], standings: dict[str, TenantShare]
) -> None:
    """The order contains every dataset, puts near deadlines first, and keeps the datasets of one tenant in the
    order of their deadlines."""
    ordered = in_turn(found, standings, at=NOW)
    assert sorted(names(ordered)) == sorted(names(found))
    near = [one.first <= NOW + BEFORE_THE_DEADLINE for one in ordered]
    assert near == sorted(near, reverse=True)
    for tenant_id in "abcd":
        own = [one.first for one in ordered if one.tenant_id == tenant_id]
        assert own == sorted(own)


@given(st.integers(1, 4), st.lists(st.tuples(anybody, st.integers(1, 6)), min_size=20, max_size=60), st.data())
def test_tenants_alternate_across_workers(workers: int, arrivals: list[tuple[str, int]], data: st.DataObject) -> None:
    """While a tenant without a running worker waits, every other tenant starts at most one run, however many
    workers there are."""
    waiting: list[DueDataset] = []
    running: list[tuple[int, str]] = []  # end and tenant of each run
    began: dict[str, datetime.datetime] = {}
    since: dict[str, list[str]] = {}  # waiting tenants without a run, and tenants that began one since
    for step, (tenant_id, length) in enumerate(arrivals):
        at = NOW + step * datetime.timedelta(seconds=1)
        running = [(until, whose) for until, whose in running if until > step]
        busy = [whose for _, whose in running]
        waiting.append(due(f"{tenant_id}{step}", tenant_id, data.draw(st.floats(8, 40))))
        for one in waiting:
            if one.tenant_id not in busy:
                since.setdefault(one.tenant_id, [])
        while waiting and len(running) < workers:
            busy = [whose for _, whose in running]
            standings = {
                whose: TenantShare(running=busy.count(whose), last_began_at=last) for whose, last in began.items()
            }
            first = in_turn(waiting, standings, at=at)[0]
            waiting.remove(first)
            at += datetime.timedelta(milliseconds=1)
            began[first.tenant_id] = at
            running.append((step + length, first.tenant_id))
            since.pop(first.tenant_id, None)
            for others in since.values():
                others.append(first.tenant_id)
                assert len(others) == len(set(others))


@given(st.integers(1, 3), st.floats(0.2, 45), st.floats(8, 45))
def test_no_tenant_waits_forever(per_step: int, limit: float, mine: float) -> None:
    """A tenant with endless work and earlier deadlines cannot delay another tenant forever: only work that was
    requested before the other tenant's deadline can go first."""
    waiting = [due("quiet", "b", mine)]
    ran = {"b": TenantShare(last_began_at=NOW)}
    for step in range(int(per_step * 2 * (mine + 45) * 4)):
        at = NOW + step * 6 * HOUR
        waiting += [due(f"a{step}.{number}", "a", (at - NOW) / DAY + limit) for number in range(per_step)]
        first = in_turn(waiting, ran, at=at)[0]
        waiting.remove(first)
        ran[first.tenant_id] = TenantShare(last_began_at=at)
        if first.dataset_id == "quiet":
            return
    raise AssertionError("It never had its turn.")
