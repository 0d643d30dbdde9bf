"""`client.ledger` and `client.audit_log`, and `client.accounting` calls about a model's ledger."""

from lethe.client.methods import H, Resource, call, pages, pieces
from lethe.features.custody import contract


class LedgerAccounting(Resource[H]):
    """`client.accounting`: the remaining influence of people's records. Only the gateway and the accounting service
    offer these calls."""

    ledger = pages(contract.LEDGER)
    verify_ledger = call(contract.VERDICT)


class Ledger(Resource[H]):
    """`client.ledger`: all models' versions in hash-chained entries, which `lethe ledger verify` recomputes."""

    head = call(contract.HEAD)
    export = pieces(contract.EXPORT)
    verify = call(contract.LEDGER_VERDICT)


class AuditLog(Resource[H]):
    """`client.audit_log`: recorded actions and who took them; all calls require the scope admin."""

    list = pages(contract.ENTRIES)
    checkpoints = pages(contract.CHECKPOINTS)
    verify = call(contract.AUDIT_VERDICT)
