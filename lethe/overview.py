"""`client.overview`: how a tenant's requests stand, in numbers."""

import datetime
from dataclasses import dataclass

from lethe.endpoints import Endpoint
from lethe.http import Http


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host whose workers share the service's data folder. `workers`: alive or silent."""

    name: str
    workers: str
    seen_at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """`open`, `ended`: how many requests of each status there are, those that ended counted up to 10,000 each.
    `workers`: alive, silent or failing."""

    open: dict[str, int]
    ended: dict[str, int]
    at_risk: int
    overdue: int
    queue_age_seconds: float
    running: int
    workers: str
    worker_seen_at: datetime.datetime | None
    hosts: tuple[Host, ...]


GET = Endpoint("GET", "/v1/overview", Numbers)


class Overview:
    def __init__(self, http: Http) -> None:
        self._http = http

    def get(self) -> Numbers:
        """What waits, what is late, and whether it gets done."""
        return self._http.call(GET)
