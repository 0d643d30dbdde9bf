"""The order of the datasets that are due: fair to tenants, deadlines first."""

import datetime
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from app.deletion.deadlines import BEFORE_THE_DEADLINE
from lethe.contract.sets import QueueRule

_NEVER = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A dataset with something to do. `deadline`: the earliest of the requests it would serve; None: there are none.
    `learning`: when the first of its models that wait to learn should have done so, if any. `test`: nothing but an
    audit or a rehearsal is to be done. `rule`: why it is due, where that is one thing."""

    dataset_id: str
    tenant_id: str
    deadline: datetime.datetime | None
    learning: datetime.datetime | None = None
    test: bool = False
    rule: QueueRule | None = None

    @property
    def first(self) -> datetime.datetime:
        return min(moment for moment in (self.deadline, self.learning) if moment)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantShare:
    """The share of a tenant so far: runs under way, and when its last run began."""

    running: int = 0
    last_began_at: datetime.datetime = _NEVER


def batch_ends(
    max_wait_seconds: int, *, oldest_at: datetime.datetime, first_due_at: datetime.datetime
) -> datetime.datetime:
    """The time from which requests that wait for each other are served however few they are: the oldest has waited as
    long as the model lets it, or the first is due within a week."""
    waited = oldest_at + datetime.timedelta(seconds=max_wait_seconds)
    return min(waited, first_due_at - BEFORE_THE_DEADLINE)


def in_turn(due: Collection[Due], standings: Mapping[str, TenantShare], *, at: datetime.datetime) -> list[Due]:
    """All of `due`, in the order in which they go.

    1. Whatever has a request that is due within a week goes before whatever has none.
    2. Among each of both tenants take turns: each dataset stands behind the runs its tenant has under way and the
       datasets of its tenant before it; of those with as many before them, first that of the tenant whose last run
       began longest ago. (Callers say when their requests were submitted: no deadline puts a tenant before others.)
    3. The datasets of one tenant go by the earliest deadline. A model that waits to learn counts as if it were due a
       month after it was made, but has no deadline that comes under 1.

    So nobody waits for ever: between two runs of one tenant, every other tenant with something as pressing to do has
    one; the deadlines of those who wait come nearer.
    """
    pressing: list[Due] = []
    others: list[Due] = []
    for one in due:
        urgent = one.deadline is not None and one.deadline <= at + BEFORE_THE_DEADLINE
        (pressing if urgent else others).append(one)
    return [
        one for lane in (pressing, others) for _, one in sorted(_placed(lane, standings), key=lambda placed: placed[0])
    ]


def _placed(
    due: Collection[Due], standings: Mapping[str, TenantShare]
) -> Iterator[tuple[tuple[int, datetime.datetime, str], Due]]:
    by_tenant = sorted(due, key=lambda one: (one.tenant_id, one.first, one.dataset_id))
    for tenant_id, own in groupby(by_tenant, key=lambda one: one.tenant_id):
        standing = standings.get(tenant_id, TenantShare())
        for place, one in enumerate(own, start=standing.running):
            yield (place, standing.last_began_at, tenant_id), one
