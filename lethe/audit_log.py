"""`client.audit_log`: who did what, in a chain of hashes; needs the scope admin."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lethe.endpoints import Endpoint
from lethe.http import Http
from lethe.values import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """`at` is text, to the letter as it was hashed."""

    tenant_id: str
    sequence: int
    at: str
    actor: str
    action: str
    object_id: str
    detail: dict[str, Any]
    previous_hash: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheckpoint:
    """`jws`: that the entry `sequence` has this hash, signed by the installation."""

    sequence: int
    hash: str
    jws: str
    signed_at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """`signed`: the last entry that a checkpoint vouches for. `fault`: what is wrong first, where it is not `valid`."""

    valid: bool
    entries: int | None
    checkpoints: int | None
    signed: int | None
    head: str | None
    fault: str | None


LIST = Endpoint("GET", "/v1/audit-log", Page[AuditEntry])
CHECKPOINTS = Endpoint("GET", "/v1/audit-log/checkpoints", Page[AuditCheckpoint])
VERIFY = Endpoint("POST", "/v1/audit-log:verify", AuditVerdict)


class AuditLog:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(
        self, *, object_id: str | None = None, actor: str | None = None, action: str | None = None
    ) -> Iterator[AuditEntry]:
        """All, or those that are so, newest first."""
        return self._http.pages(LIST, object_id=object_id, actor=actor, action=action)

    def checkpoints(self) -> Iterator[AuditCheckpoint]:
        """All, newest first. Whoever keeps the last one elsewhere can tell a forged log."""
        return self._http.pages(CHECKPOINTS)

    def verify(self) -> AuditVerdict:
        """Have the service recompute all of it. What an outsider believes is `lethe audit verify`."""
        return self._http.call(VERIFY)
