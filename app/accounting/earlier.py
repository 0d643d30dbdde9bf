"""Ledger entries of an earlier format: their hashes are verified, and their numbers, which this release does not know
how to recompute, are believed of no entry but those for which the upgrade vouched.

At the upgrade one link more goes to the chain over a tenant's models. It says, signed, which link it follows, and so
which entries were there: somebody who adds one that claims to be as old adds it after that link, or contradicts the
signature.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import sqlalchemy as sa
from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app import signing
from app.accounting import ledger, repository
from app.audit import checkpoints
from app.audit import repository as chains
from app.audit.chains import GENESIS, LEDGER, canonical
from app.db.tables import LedgerLink, Tenant
from app.keys import Keys
from lethe.proof import wellformed

FORMAT = "lethe-ledger/1"
KIND = "upgraded"
"""The kind of the link."""
_MEDIA_TYPE = "lethe-ledger-upgrade+jws"

Vouched = frozenset[tuple[str, int, str]]
"""Model, sequence and hash of each entry that was there at the upgrade."""


def vouch(session: Session, keys: Keys) -> None:
    """Vouch, once, for the entries of each tenant of which none is of the present format, and sign the new head.

    For the upgrade that brings the database to the present schema, in that transaction. Raises `SignatureUnverifiable`.
    """
    for tenant_id in session.scalars(sa.select(Tenant.id).order_by(Tenant.id)).all():
        last = chains.last_row(session, LEDGER, tenant_id=tenant_id)
        if last is None or not _are_all_earlier(session, tenant_id):
            continue
        said = _statement(tenant_id=tenant_id, sequence=last.sequence + 1, previous_hash=last.hash)
        signed = signing.sign(keys, canonical(said).encode(), kind=_MEDIA_TYPE)
        ledger.link(session, tenant_id=tenant_id, kind=KIND, jws=signed)
        checkpoints.checkpoint_now(session, keys, LEDGER, tenant_id=tenant_id)


def vouched(links: Iterable[LedgerLink], public_keys: KeySet) -> Vouched:
    """The entries that the links of a tenant name before the one that vouches for them; none where none does."""
    found, previous = set[tuple[str, int, str]](), GENESIS
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):  # of what is no chain nothing is
        for link in links:
            said = wellformed.read(link.body)
            if link.previous_hash != previous or link.hash != LEDGER.hash_of(link):
                break
            if said["kind"] == KIND:
                return frozenset(found) if is_signed(link, said, public_keys) else frozenset()
            if said["kind"] == "entry":
                found.add((said["model_id"], said["entry"], said["hash"]))
            previous = link.hash
    return frozenset()


def vouched_in(session: Session, public_keys: KeySet, *, tenant_id: str) -> Callable[[], Vouched]:
    """The same of the database, read when it is asked for: of most ledgers it never is."""
    return lambda: vouched(chains.rows_of(session, LEDGER, tenant_id=tenant_id), public_keys)


def is_signed(link: LedgerLink, said: dict[str, Any], public_keys: KeySet) -> bool:
    """Return True if one of these keys signed at an upgrade that this link, which says so, comes where it does."""
    payload = signing.signed_payload(str(said.get("jws")), public_keys, kind=_MEDIA_TYPE)
    expected = _statement(tenant_id=link.tenant_id, sequence=link.sequence, previous_hash=link.previous_hash)
    return payload == canonical(expected).encode()


def _statement(*, tenant_id: str, sequence: int, previous_hash: str) -> dict[str, Any]:
    place = {"tenant_id": tenant_id, "sequence": sequence, "previous_hash": previous_hash}
    return place | {"format": "lethe-ledger-upgrade/1", "entries_of": FORMAT}


def _are_all_earlier(session: Session, tenant_id: str) -> bool:
    """Return True if there are entries, all of the earlier format: nothing was published since the upgrade, nor
    vouched."""
    kinds = {wellformed.read(link.body)["kind"] for link in chains.rows_of(session, LEDGER, tenant_id=tenant_id)}
    formats = {ledger.format_of(entry) for entry in repository.entries_of_tenant(session, tenant_id=tenant_id)}
    return KIND not in kinds and formats == {FORMAT}
