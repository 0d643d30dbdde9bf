"""`client.ledger`: all versions of all models, in hash-chained entries; `lethe ledger verify` recomputes an export."""

from lethe.contract import ledger
from lethe.methods import H, Resource, call, pieces


class Ledger(Resource[H]):
    head = call(ledger.HEAD)
    export = pieces(ledger.EXPORT)
    verify = call(ledger.VERDICT)
