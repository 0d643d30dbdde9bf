"""`client.suppressions`: who asked to be forgotten, and is not taken in again."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field

from lethe.endpoints import Endpoint, given
from lethe.http import Http
from lethe.values import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """`dataset_id`: where rows of the person are refused; `*` for wherever."""

    id: str
    subject_ref: str = field(repr=False)
    dataset_id: str
    request_id: str
    created_at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    num_lifted: int


LIST = Endpoint("GET", "/v1/suppressions", Page[Suppression])
LIFT = Endpoint("POST", "/v1/suppressions:lift", Lifted)


class Suppressions:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, *, subject_id: str | None = None) -> Iterator[Suppression]:
        """All, or those of a person, newest first."""
        return self._http.pages(LIST, subject_id=subject_id)

    def lift(self, *, subject_id: str | None = None, subject_sha256: str | None = None) -> Lifted:
        """Take rows of a person again, who has given consent; needs the scope admin."""
        body = given(subject_id=subject_id, subject_sha256=subject_sha256, reason="consent_given")
        return self._http.call(LIFT, json=body)
