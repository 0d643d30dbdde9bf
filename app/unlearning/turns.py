"""Order of due datasets: urgent deadlines first, then fairly among tenants."""

import datetime
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from app.deletion.deadlines import BEFORE_THE_DEADLINE
from lethe.contract.sets import QueueRule

_NEVER = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueDataset:
    """Dataset with work to do. `deadline` is the earliest deadline of the requests that a run would serve, if any.
    `learning` is the time by which its first waiting model should be trained, if any. `test` means that the only work
    is a canary test or a rehearsal. `rule` is the rule by which it is due; None if several rules are merged."""

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
    """Tenant's current share of the workers: its number of runs in progress, and the start of its latest run."""

    running: int = 0
    last_began_at: datetime.datetime = _NEVER


def batch_ends(
    max_wait_seconds: int, *, oldest_at: datetime.datetime, first_due_at: datetime.datetime
) -> datetime.datetime:
    """Return the time from which a batch is served even if it is not full: when its oldest request has waited the
    model's maximum time, or a week before its first deadline if that is earlier."""
    waited = oldest_at + datetime.timedelta(seconds=max_wait_seconds)
    return min(waited, first_due_at - BEFORE_THE_DEADLINE)


def in_turn(
    datasets: Collection[DueDataset], standings: Mapping[str, TenantShare], *, at: datetime.datetime
) -> list[DueDataset]:
    """Return `datasets` in the order in which workers claim them.

    1. Datasets with a request due within a week precede all others. 2. Within each group, tenants alternate: a
    dataset's place is the number of its tenant's runs in progress plus the number of its tenant's datasets before it.
    At equal places, the tenant whose latest run began earliest goes first. Deadlines do not rank tenants, because
    callers state when their requests were submitted. 3. A tenant's datasets are ordered by earliest deadline. A model
    that is waiting to be trained counts as due a month after its creation, but that date does not make its dataset
    urgent under rule 1.

    Therefore no dataset starves: between two runs of a tenant, every other tenant with equally urgent work gets one
    run, and waiting datasets move closer to their deadlines.
    """
    urgent: list[DueDataset] = []
    others: list[DueDataset] = []
    for dataset in datasets:
        is_urgent = dataset.deadline is not None and dataset.deadline <= at + BEFORE_THE_DEADLINE
        (urgent if is_urgent else others).append(dataset)
    return [
        dataset
        for group in (urgent, others)
        for _, dataset in sorted(_with_places(group, standings), key=lambda pair: pair[0])
    ]


def _with_places(
    datasets: Collection[DueDataset], standings: Mapping[str, TenantShare]
) -> Iterator[tuple[tuple[int, datetime.datetime, str], DueDataset]]:
    by_tenant = sorted(datasets, key=lambda dataset: (dataset.tenant_id, dataset.first, dataset.dataset_id))
    for tenant_id, own in groupby(by_tenant, key=lambda dataset: dataset.tenant_id):
        share = standings.get(tenant_id, TenantShare())
        for place, dataset in enumerate(own, start=share.running):
            yield (place, share.last_began_at, tenant_id), dataset
