"""An independent reader of the ledger: recomputes every hash and every number from the entries alone."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from app.accounting.ledger import GENESIS, chain_numbers, entry_hash
from app.db.tables import LedgerEntry, Version
from app.errors import LedgerCorrupt
from app.privacy import accountant, guarantees
from app.privacy.accountant import Chain
from app.privacy.errors import PrivacyError
from app.privacy.guarantees import Guarantee
from app.privacy.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was verified: nothing is reported of a ledger that is not whole."""

    models: int
    entries: int
    heads: dict[str, str]


def verify(entries: Iterable[LedgerEntry], versions: Iterable[Version]) -> Report:
    """Verify `entries` (ordered by model, sequence) and that `versions` are exactly the ones they account for.

    Raises `LedgerCorrupt`, naming the model, the entry and the part at fault.
    """
    heads: dict[str, str] = {}
    accounted: dict[tuple[str, int], str] = {}
    count = 0
    for model_id, of_model in groupby(entries, key=lambda entry: entry.model_id):
        previous, chain = GENESIS, None
        for expected, entry in enumerate(of_model, start=1):
            body = _check_link(entry, model_id=model_id, sequence=expected, previous=previous)
            try:
                chain = _check_numbers(body, chain)
            except (PrivacyError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                raise _corrupt(entry, f"its numbers cannot be recomputed ({type(error).__name__}: {error})") from error
            previous = entry.hash
            accounted[model_id, body["version"]] = body["weights_sha256"]
            count += 1
        heads[model_id] = previous
    for version in versions:
        if accounted.pop((version.model_id, version.number), None) != version.weights_sha256:
            raise LedgerCorrupt(f"Version {version.number} of model {version.model_id} is not the one in the ledger.")
    if accounted:
        model_id, number = next(iter(accounted))
        raise LedgerCorrupt(f"The ledger accounts for version {number} of model {model_id}, which does not exist.")
    return Report(models=len(heads), entries=count, heads=heads)


def _check_link(entry: LedgerEntry, *, model_id: str, sequence: int, previous: str) -> dict[str, Any]:
    if entry.sequence != sequence:
        raise _corrupt(entry, f"entry {sequence} is missing before it")
    if entry.previous_hash != previous:
        raise _corrupt(entry, "it does not follow its predecessor")
    if entry.hash != entry_hash(previous, entry.body):
        raise _corrupt(entry, "its body is not what was hashed")
    try:
        body = json.loads(entry.body)
    except ValueError as error:
        raise _corrupt(entry, "its body is not JSON") from error
    if not isinstance(body, dict):
        raise _corrupt(entry, "its body is not a JSON object")
    if (body.get("model_id"), body.get("sequence"), body.get("version")) != (model_id, sequence, sequence):
        raise _corrupt(entry, "its body belongs to another place in the ledger")
    if (body.get("format"), body.get("theorem")) != ("lethe-ledger/1", accountant.THEOREM):
        raise _corrupt(entry, "its format or theorem is unknown to this reader")
    return body


def _check_numbers(body: dict[str, Any], chain: Chain | None) -> Chain:
    """The chain after the entry; raises `ValueError` naming the number that does not follow."""
    mechanism = Mechanism.from_json(body["mechanism"])
    run = accountant.Run(steps=body["steps"], records=body["records"])
    match body["kind"]:
        case "learn" | "relearn":
            if run.steps != mechanism.learn_steps:
                raise ValueError(f"it learned for {run.steps} steps, not the {mechanism.learn_steps} of its mechanism")
            chain = accountant.advance(accountant.started(mechanism), run)
        case "unlearn":
            if chain is None or chain.mechanism != mechanism:
                raise ValueError("it continues no chain of the same mechanism")
            chain = accountant.advance(chain, run)
        case kind:
            raise ValueError(f"kind {kind!r} is unknown")
    guarantees.confirm("chain", stated=body["chain"], recomputed=chain_numbers(chain))
    recomputed = guarantees.of_chain(chain, last_run=run, delta=body["guarantees"][0]["delta"])
    for stated, guarantee in zip(body["guarantees"], recomputed, strict=True):
        numbers = {name: getattr(guarantee, name) for name in Guarantee.__slots__}
        guarantees.confirm("guarantees", stated=stated, recomputed=numbers)
    return chain


def _corrupt(entry: LedgerEntry, what: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"Model {entry.model_id}, ledger entry {entry.sequence}: {what}.")
