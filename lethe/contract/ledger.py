"""The ledger of a whole tenant, to be kept and verified elsewhere: its signed head, and all of it."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer
from lethe.contract.operation import Resource
from lethe.contract.problems import LedgerCorrupt
from lethe.contract.sets import Scope


class LedgerHeadOut(Answer):
    tenant_id: str
    sequence: int = Field(description="Of the last link of the chain over all models; 0: nothing was published yet.")
    hash: str = Field(description="Of that link.")
    jws: str | None = Field(
        description="The same, signed: a compact JWS, Ed25519, with a key of /.well-known/jwks.json; null with 0."
    )
    signed_at: datetime.datetime | None


class TenantLedgerVerdictOut(Answer):
    tenant_id: str
    valid: bool
    fault: str | None = Field(description="What is at fault first; null where all holds.")
    models: int | None = Field(description="With entries; null, as all below, where the ledger does not hold.")
    entries: int | None = Field(description="That were recomputed.")
    not_recomputed: int | None = Field(
        description="Entries of an earlier format, which were there at the upgrade: their hashes hold, their numbers"
        " are not recomputed."
    )
    certificates: int | None = Field(description="That name an entry, each as it is.")
    links: int | None = Field(description="Of the chain over all models.")
    signed: int | None = Field(description="The last link that a signed head vouches for; 0: none.")
    head: str | None = Field(description="The hash of the last link.")


_LEDGER = Resource("Accounting", "/v1/ledger")

HEAD = _LEDGER.operation(
    "get_ledger_head",
    "GET",
    "/head",
    scope=Scope.ACCOUNTING_READ,
    gives=LedgerHeadOut,
    problems=(LedgerCorrupt,),
    does="What was signed about the end of the ledger, over all models. Keep it where nobody who runs the "
    "service reaches it: whatever is removed or rewritten afterwards contradicts it.",
)
EXPORT = _LEDGER.operation(
    "export_ledger",
    "GET",
    "/export",
    scope=Scope.ACCOUNTING_READ,
    gives=bytes,
    problems=(LedgerCorrupt,),
    does="The whole ledger as lines of JSON, with its signed head at the end: `lethe ledger verify` recomputes"
    " it offline, and against a head that was kept.",
)
VERDICT = _LEDGER.operation(
    "verify_whole_ledger",
    "GET",
    "/verdict",
    scope=Scope.ACCOUNTING_READ,
    gives=TenantLedgerVerdictOut,
    does="Recompute every hash and number of all models, and hold them against versions, certificates and "
    "signed heads.\n\nThat is all that an installation can say about itself: keep heads elsewhere, and see "
    "`lethe ledger verify`.",
)
