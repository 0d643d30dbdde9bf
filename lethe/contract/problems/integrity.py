"""Rows, ledgers and certificates that do not verify."""

from typing import Self

from lethe.contract.problems.families import Conflict, Malformed, Problem
from lethe.contract.sets import DamageKind


class DatasetDamaged(Conflict):
    """`rows_id`: of the dataset, or of rows that wait to be added to one; `block`: which 4096 of them."""

    code = "dataset_damaged"
    title = "The rows of a dataset are not those on record"

    rows_id: str
    kind: DamageKind
    block: int | None

    @classmethod
    def found(cls, rows_id: str, kind: DamageKind, block: int | None = None) -> Self:
        where = f"{kind} of block {block}" if block is not None else kind
        error = cls(
            f"The rows of {rows_id} are not those on record ({where}): no run touches the dataset until the right file "
            "is back and `lethe dataset recheck` finds nothing, or until `lethe restore`."
        )
        error.rows_id, error.kind, error.block = rows_id, kind, block
        return error


class LedgerCorrupt(Problem):
    code = "ledger_corrupt"
    title = "The ledger does not verify"


class LedgerRestored(LedgerCorrupt):
    code = "ledger_restored"
    title = "The ledger was restored to before the head that was kept"


class CertificateInvalid(Malformed):
    code = "certificate_invalid"
    title = "The certificate does not verify"


class CertificateBeyondLimits(CertificateInvalid):
    code = "certificate_beyond_limits"
    title = "The certificate verifies, and guarantees less than was asked for"
