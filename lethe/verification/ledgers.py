"""Independent reader of ledgers that recomputes every hash and every number from the entries alone.

Each model has a ledger, whose entries are numbered without gaps and linked by hashes. A chain over all of a tenant's
models, whose head is signed, names every entry in chronological order.
"""

import datetime
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from joserfc.jwk import KeySet

from lethe.contract.problems import LedgerCorrupt, LedgerRestored
from lethe.contract.sets import RunKind
from lethe.proof import accountant, errors, guarantees, methods, wellformed
from lethe.verification.certificates import signed_payload
from lethe.verification.chains import GENESIS, LEDGER, SignedHead, link_hash

FORMAT = "lethe-ledger/2"
LINK_FORMAT = "lethe-ledger-link/1"


class ChainRow(Protocol):
    """Row of a hash chain."""

    @property
    def sequence(self) -> int: ...
    @property
    def body(self) -> str: ...
    @property
    def previous_hash(self) -> str: ...
    @property
    def hash(self) -> str: ...


class Entry(ChainRow, Protocol):
    """Ledger entry for a published version: the version's run, and the numbers that follow from the run."""

    @property
    def model_id(self) -> str: ...


class Published(Protocol):
    """Published model version that a ledger must account for."""

    @property
    def model_id(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def weights_sha256(self) -> str: ...


class Link(ChainRow, Protocol):
    """Link of the chain over a tenant's models."""

    @property
    def tenant_id(self) -> str: ...


class Certified(Protocol):
    """Certificate, as a signed JWS, that may name a ledger entry."""

    @property
    def id(self) -> str: ...
    @property
    def jws(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of verifying an intact ledger. `hashes` maps (model, sequence) to the entry's hash."""

    models: int
    entries: int
    heads: dict[str, str]
    hashes: dict[tuple[str, int], str] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTenant:
    """Result of verifying a tenant's ledger: its models, the number of links, the last `signed` link, and the number of
    certificates that agree with it. `restored` lists its statements about restores, each with its link's number."""

    tenant_id: str
    report: Report
    links: int
    signed: int
    head: str
    certificates: int
    restored: tuple[dict[str, Any], ...]
    link_hashes: tuple[str, ...] = field(default=(), repr=False)


def verify(entries: Iterable[Entry], versions: Iterable[Published]) -> Report:
    """Verify `entries` (ordered by model, sequence) and check that they account for exactly the `versions`.

    Raises `LedgerCorrupt`, naming the model, the entry and the failed check.
    """
    heads: dict[str, str] = {}
    hashes: dict[tuple[str, int], str] = {}
    accounted: dict[tuple[str, int], str] = {}
    count = 0
    for model_id, of_model in groupby(entries, key=lambda entry: entry.model_id):
        previous, history = GENESIS, None
        for expected, entry in enumerate(of_model, start=1):
            body = _check_link(entry, model_id=model_id, sequence=expected, previous=previous)
            accounted[model_id, body["version"]] = body["weights_sha256"]
            hashes[model_id, expected], previous = entry.hash, entry.hash
            try:
                history = _check_numbers(body, history)
            except (errors.PrivacyError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
                raise _corrupt(entry, f"its numbers cannot be recomputed ({type(error).__name__}: {error})") from error
            count += 1
        heads[model_id] = previous
    for version in versions:
        if accounted.pop((version.model_id, version.number), None) != version.weights_sha256:
            raise LedgerCorrupt(f"Version {version.number} of model {version.model_id} is not the one in the ledger.")
    if accounted:
        model_id, number = next(iter(accounted))
        raise LedgerCorrupt(f"The ledger accounts for version {number} of model {model_id}, which does not exist.")
    return Report(models=len(heads), entries=count, heads=heads, hashes=hashes)


def verify_tenant(
    tenant_id: str,
    *,
    entries: Iterable[Entry],
    versions: Iterable[Published],
    links: Iterable[Link],
    signed: Iterable[SignedHead],
    certificates: Iterable[Certified],
    public_keys: KeySet,
) -> OfTenant:
    """Verify that every model's ledger of a tenant is intact (see `verify`), that the chain over all models names each
    entry once and in order, that this chain was `signed`, and that each certificate names an unchanged entry.

    Raises `LedgerCorrupt`, naming the failed check.
    """
    report = verify(entries, versions)
    linked = _Linked(tenant_id, report.hashes)
    chain = LEDGER.verify(tenant_id, linked.reading(links), signed, public_keys)
    linked.require_all()
    return OfTenant(
        tenant_id=tenant_id,
        report=report,
        links=chain.entries,
        signed=chain.signed,
        head=chain.head,
        certificates=_agreeing(certificates, report.hashes, public_keys),
        restored=tuple(linked.restored),
        link_hashes=tuple(linked.hashes),
    )


def require_kept(verified: OfTenant, head: SignedHead, public_keys: KeySet) -> None:
    """Require that a verified ledger continues from a head that was kept elsewhere.

    Raises `LedgerRestored` if the ledger states that it was restored to a time before that head, else `LedgerCorrupt`.
    """
    if not LEDGER.is_signed(head, public_keys):
        raise LedgerCorrupt(f"The head of link {head.sequence} was not signed with any of the given keys.")
    if head.sequence <= verified.links and verified.link_hashes[head.sequence - 1] == head.hash:
        return
    place = (
        f"Tenant {head.tenant_id}: the head that was kept is of link {head.sequence}, signed {head.signed_at:%F %T} UTC"
    )
    for fact in verified.restored:
        restored_at = datetime.datetime.fromisoformat(fact["restored_at"])
        if fact["sequence"] <= head.sequence and restored_at >= head.signed_at:
            raise LedgerRestored(
                f"{place}, and the ledger does not have it. It says itself that the installation was restored from a "
                f"backup ({fact['backup_id']}) on {restored_at:%F %T} UTC, and that nothing is left of what came after "
                f"link {fact['sequence'] - 1} until then. Whether that is so, ask whoever runs it."
            )
    if head.sequence > verified.links:
        raise LedgerCorrupt(
            f"{place}, and the ledger ends with link {verified.links}: it is older than the head, or what came last "
            "was removed."
        )
    raise LedgerCorrupt(f"{place}, and that link of the ledger is another one: it was rewritten.")


class _Linked:
    """Entries not yet named by the chain over a tenant's models, and the chain's statements read so far."""

    def __init__(self, tenant_id: str, hashes: dict[tuple[str, int], str]) -> None:
        self._tenant_id = tenant_id
        self._left = dict(hashes)
        self._reached: dict[str, int] = {}
        self.restored: list[dict[str, Any]] = []
        self.hashes: list[str] = []

    def reading(self, links: Iterable[Link]) -> Iterator[Link]:
        """Yield the links, checking each one when the next is requested."""
        for link in links:
            yield link
            self.hashes.append(link.hash)
            self._read(link)

    def require_all(self) -> None:
        for model_id, entry in self._left:
            raise LedgerCorrupt(f"Model {model_id}, ledger entry {entry}: no link of its tenant's chain names it.")

    def _read(self, link: Link) -> None:
        try:
            body = wellformed.read(link.body)
            place = body["format"], body["tenant_id"], body["sequence"]
            if place != (LINK_FORMAT, self._tenant_id, link.sequence):
                raise ValueError("It belongs to another place.")
            match body["kind"]:
                case "entry":
                    model_id, entry, hash_ = body["model_id"], body["entry"], body["hash"]
                    entry_hash = self._left.pop((model_id, entry), None)
                case "restored":
                    datetime.datetime.fromisoformat(body["restored_at"])
                    self.restored.append(body)
                    return
                case kind:
                    raise ValueError(f"Its kind {kind!r} is unknown.")
        except (LookupError, TypeError, ValueError) as error:
            raise LEDGER.fault(self._tenant_id, f"ledger link {link.sequence}", "its body is not one") from error
        place_of = f"Model {model_id}, ledger entry {entry}"
        if entry_hash is None:
            raise LedgerCorrupt(f"{place_of}: it is missing; link {link.sequence} of its tenant's chain names it.")
        if entry_hash != hash_:
            raise LedgerCorrupt(f"{place_of}: it is not the one that link {link.sequence} of its tenant's chain names.")
        if entry != self._reached.get(model_id, 0) + 1:
            raise LedgerCorrupt(f"{place_of}: its tenant's chain names it before another one that precedes it.")
        self._reached[model_id] = entry


def _agreeing(certificates: Iterable[Certified], hashes: dict[tuple[str, int], str], public_keys: KeySet) -> int:
    """Return the number of certificates that name an entry. Raises `LedgerCorrupt` if one disagrees with its entry."""
    count = 0
    for certificate in certificates:
        payload = signed_payload(certificate.jws, public_keys)
        if payload is None:
            raise LedgerCorrupt(f"Certificate {certificate.id} was not signed with any of the given keys.")
        try:
            statement = wellformed.read(payload)
            if statement.get("ledger") is None:
                # A statement without an entry is not about a version.
                continue
            model_id, named = statement["model"]["id"], statement["ledger"]
            agrees = hashes.get((model_id, named["sequence"])) == named["hash"]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise LedgerCorrupt(f"Certificate {certificate.id} holds no statement.") from error
        if not agrees:
            raise LedgerCorrupt(
                f"Certificate {certificate.id} names entry {named['sequence']} of model {model_id}, which is not as it "
                "was when that was signed, or not there."
            )
        count += 1
    return count


def _check_link(entry: Entry, *, model_id: str, sequence: int, previous: str) -> dict[str, Any]:
    if entry.sequence != sequence:
        raise _corrupt(entry, f"entry {sequence} is missing before it")
    if entry.previous_hash != previous:
        raise _corrupt(entry, "it does not follow its predecessor")
    if entry.hash != link_hash(previous, entry.body):
        raise _corrupt(entry, "its body is not what was hashed")
    try:
        body = json.loads(entry.body)
    except ValueError as error:
        raise _corrupt(entry, "its body is not JSON") from error
    if not isinstance(body, dict):
        raise _corrupt(entry, "its body is not a JSON object")
    if (body.get("model_id"), body.get("sequence"), body.get("version")) != (model_id, sequence, sequence):
        raise _corrupt(entry, "its body belongs to another place in the ledger")
    theorems = {method.theorem for method in methods.all_methods().values()}
    if body.get("format") != FORMAT or body.get("theorem") not in theorems:
        raise _corrupt(entry, "its format or theorem is unknown to this reader")
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """Runs of a model's current chain that affect its numbers (`accountant.recent`), each with its version,
    oldest first; the number of steps before them; and the chain after the last run."""

    runs: tuple[tuple[int, accountant.Run], ...]
    steps_before: int
    chain: accountant.Chain

    def followed(self, version: int, run: accountant.Run) -> "_History":
        """Return the history with one more run, less the runs that the ledger's writer drops at this point."""
        runs, steps_before, mechanism = (*self.runs, (version, run)), self.steps_before, self.chain.mechanism
        method = methods.of(mechanism)
        dropped = len(runs) - len(method.recent(mechanism, reversed(runs)))
        if not dropped:
            return _History(runs=runs, steps_before=steps_before, chain=method.advance(self.chain, run))
        steps_before += sum(run.steps for _, run in runs[:dropped])
        chain = methods.replay(mechanism, [run for _, run in runs[dropped:]], steps_before=steps_before)
        return _History(runs=runs[dropped:], steps_before=steps_before, chain=chain)


def _check_numbers(body: dict[str, Any], history: _History | None) -> _History:
    """Return the history with the entry. Raises `ValueError`, naming a number that does not follow from the runs."""
    mechanism = methods.read(body["mechanism"])
    method = methods.of(mechanism)
    if body["theorem"] != method.theorem:
        raise ValueError(f"its theorem is not {method.theorem}")
    run = accountant.Run(steps=body["steps"], records=body["records"])
    match body["kind"]:
        case RunKind.LEARN | RunKind.RELEARN:
            if run.steps != mechanism.learn_steps:
                raise ValueError(f"it learned for {run.steps} steps, not the {mechanism.learn_steps} of its mechanism")
            history = _History(runs=(), steps_before=0, chain=method.started(mechanism))
        case RunKind.UNLEARN:
            if history is None or history.chain.mechanism != mechanism:
                raise ValueError("it continues no chain of the same mechanism")
        case kind:
            raise ValueError(f"kind {kind!r} is unknown")
    history = history.followed(body["version"], run)
    chain = history.chain
    if body["first_step"] != chain.steps - run.steps:
        raise ValueError("its first step is not the one after the steps of its chain so far")
    guarantees.confirm("chain", stated=body["chain"], recomputed=chain_numbers(chain))
    recomputed = guarantees.of_chain(chain, last_run=run, delta=body["guarantees"][0]["delta"])
    for stated, guarantee in zip(body["guarantees"], recomputed, strict=True):
        numbers = {name: getattr(guarantee, name) for name in guarantees.Guarantee.__slots__}
        guarantees.confirm("guarantees", stated=stated, recomputed=numbers)
    return history


def _corrupt(entry: Entry, reason: str) -> LedgerCorrupt:
    return LedgerCorrupt(f"Model {entry.model_id}, ledger entry {entry.sequence}: {reason}.")


def chain_numbers(chain: accountant.Chain) -> dict[str, float]:
    """Return the numbers of a chain that a ledger entry states."""
    return {"steps": chain.steps, "variance": chain.variance, "presence": chain.presence, "influence": chain.influence}
