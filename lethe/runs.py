"""`client.runs`: what the workers did and are doing."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from lethe.endpoints import Endpoint
from lethe.http import Http
from lethe.values import Audit, Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`kind`: learn, unlearn, relearn, erase, add or audit. `audit`: None where none was made. `repeated`: how many
    runs before it ended for the same reason, one after the other, and are not kept."""

    id: str
    kind: str
    status: str
    dataset_id: str
    model_id: str | None
    steps_done: int
    steps_total: int
    records: int
    reason: str
    worker: str
    started_at: datetime.datetime
    finished_at: datetime.datetime | None
    error_code: str | None
    repeated: int
    audit: Audit | None


LIST = Endpoint("GET", "/v1/runs", Page[Run])
GET = Endpoint("GET", "/v1/runs/{run_id}", Run)
CANCEL = Endpoint("POST", "/v1/runs/{run_id}/cancel", Run)


class Runs:
    def __init__(self, http: Http) -> None:
        self._http = http

    def get(self, run_id: str) -> Run:
        return self._http.call(GET, run_id)

    def cancel(self, run_id: str) -> Run:
        """Stop a run that learns or audits. Raises `Conflict` for any other, and for one that has ended."""
        return self._http.call(CANCEL, run_id)

    def list(self, *, model_id: str | None = None, status: str | None = None) -> Iterator[Run]:
        """All, or those of a model or of a status (running, published, failed, abandoned, cancelled), newest first."""
        return self._http.pages(LIST, model_id=model_id, status=status)
