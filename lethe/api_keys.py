"""`client.api_keys`: who may call, and what; all of these need the scope admin."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lethe.endpoints import Endpoint, given
from lethe.http import Http
from lethe.values import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """`last_used_at`: to the minute or so."""

    id: str
    name: str
    scopes: tuple[str, ...]
    calls_per_minute: int | None
    own_requests_only: bool
    created_at: datetime.datetime
    expires_at: datetime.datetime | None
    last_used_at: datetime.datetime | None
    revoked_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey(ApiKey):
    """`key` is shown once, here."""

    key: str = field(repr=False)


CREATE = Endpoint("POST", "/v1/api-keys", NewApiKey)
LIST = Endpoint("GET", "/v1/api-keys", Page[ApiKey])
ROTATE = Endpoint("POST", "/v1/api-keys/{key_id}/rotate", NewApiKey)
REVOKE = Endpoint("DELETE", "/v1/api-keys/{key_id}", type(None))


class ApiKeys:
    """What is made here is not made again by itself: after a lost answer, revoke the key that was never seen."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self,
        *,
        name: str,
        scopes: Sequence[str],
        expires_at: datetime.datetime | None = None,
        calls_per_minute: int | None = None,
        own_requests_only: bool | None = None,
    ) -> NewApiKey:
        """A key with these scopes (docs/sdk.md), at most those of the caller. `own_requests_only`: it sees the requests
        that it made itself; the default for a key that makes requests and may do nothing else."""
        body = given(
            name=name,
            scopes=list(scopes),
            expires_at=expires_at and expires_at.isoformat(),
            calls_per_minute=calls_per_minute,
            own_requests_only=own_requests_only,
        )
        return self._http.call(CREATE, json=body)

    def list(self) -> Iterator[ApiKey]:
        """All, newest first."""
        return self._http.pages(LIST)

    def rotate(
        self, key_id: str, *, overlap_seconds: int = 0, expires_at: datetime.datetime | None = None
    ) -> NewApiKey:
        """A key that may do the same; the old one ends after `overlap_seconds`."""
        body = given(overlap_seconds=overlap_seconds, expires_at=expires_at and expires_at.isoformat())
        return self._http.call(ROTATE, key_id, json=body)

    def revoke(self, key_id: str) -> None:
        self._http.delete(REVOKE, key_id)
