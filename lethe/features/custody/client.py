"""`client.ledger` and `client.audit_log`, and calls of `client.accounting` about the ledger of a model."""

from lethe.client.methods import H, Resource, call, pages, pieces
from lethe.features.custody import contract


class LedgerAccounting(Resource[H]):
    """`client.accounting`: remaining influence of people's records. Only the gateway and the accounting service have
    it."""

    ledger = pages(contract.LEDGER)
    verify_ledger = call(contract.VERDICT)


class Ledger(Resource[H]):
    """`client.ledger`: all versions of all models in hash-chained entries; `lethe ledger verify` recomputes them."""

    head = call(contract.HEAD)
    export = pieces(contract.EXPORT)
    verify = call(contract.LEDGER_VERDICT)


class AuditLog(Resource[H]):
    """`client.audit_log`: actions and their actors; all calls need the scope admin."""

    list = pages(contract.ENTRIES)
    checkpoints = pages(contract.CHECKPOINTS)
    verify = call(contract.AUDIT_VERDICT)
