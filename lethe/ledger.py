"""`client.ledger`: the ledger of a whole tenant, to be kept and verified elsewhere."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from lethe.endpoints import Endpoint
from lethe.http import Http


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHead:
    """`jws`: that link `sequence` of the chain over all models has this hash, signed; None where there is none yet."""

    tenant_id: str
    sequence: int
    hash: str
    jws: str | None
    signed_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLedgerVerdict:
    """`signed`: the last link that a signed head vouches for. `fault`: what is wrong first, where it is not `valid`.
    `not_recomputed`: entries of an earlier format, of which the hashes hold; the numbers are not recomputed."""

    tenant_id: str
    valid: bool
    fault: str | None
    models: int | None
    entries: int | None
    not_recomputed: int | None
    certificates: int | None
    links: int | None
    signed: int | None
    head: str | None


HEAD = Endpoint("GET", "/v1/ledger/head", LedgerHead)
EXPORT = Endpoint("GET", "/v1/ledger/export", bytes)
VERDICT = Endpoint("GET", "/v1/ledger/verdict", TenantLedgerVerdict)


class Ledger:
    def __init__(self, http: Http) -> None:
        self._http = http

    def head(self) -> LedgerHead:
        """What was signed about the end of the ledger. Whoever keeps it elsewhere can tell a forged ledger."""
        return self._http.call(HEAD)

    def export(self) -> Iterator[bytes]:
        """All of it, piece by piece, as lines of JSON that `lethe ledger verify` recomputes offline."""
        return self._http.pieces(EXPORT)

    def verify(self) -> TenantLedgerVerdict:
        """Have the service recompute all of it. What an outsider believes is `lethe ledger verify`."""
        return self._http.call(VERDICT)
