"""Ledger entries of an earlier format: at the upgrade the installation vouches for them, once
(`lethe.verification.upgrades`)."""

from collections.abc import Callable

import sqlalchemy as sa
from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app import signing
from app.accounting import ledger, repository
from app.audit import checkpoints
from app.audit import repository as chains
from app.audit.chains import LEDGER
from app.db.tables import Tenant
from app.keys import Keys
from lethe.proof import wellformed
from lethe.verification import upgrades
from lethe.verification.chains import canonical
from lethe.verification.upgrades import FORMAT, KIND, MEDIA_TYPE, Vouched


def vouch(session: Session, keys: Keys) -> None:
    """Vouch, once, for the entries of each tenant of which none is of the present format, and sign the new head.

    For the upgrade that brings the database to the present schema, in that transaction. Raises `SignatureUnverifiable`.
    """
    for tenant_id in session.scalars(sa.select(Tenant.id).order_by(Tenant.id)).all():
        last = chains.last_row(session, LEDGER, tenant_id=tenant_id)
        if last is None or not _are_all_earlier(session, tenant_id):
            continue
        said = upgrades.statement(tenant_id=tenant_id, sequence=last.sequence + 1, previous_hash=last.hash)
        signed = signing.sign(keys, canonical(said).encode(), kind=MEDIA_TYPE)
        ledger.link(session, tenant_id=tenant_id, kind=KIND, jws=signed)
        checkpoints.checkpoint_now(session, keys, LEDGER, tenant_id=tenant_id)


def vouched_in(session: Session, public_keys: KeySet, *, tenant_id: str) -> Callable[[], Vouched]:
    """The entries of the database for which an upgrade vouched, read when they are asked for: most ledgers have
    none."""
    return lambda: upgrades.vouched(chains.rows_of(session, LEDGER, tenant_id=tenant_id), public_keys)


def _are_all_earlier(session: Session, tenant_id: str) -> bool:
    """Return True if there are entries, all of the earlier format: nothing was published since the upgrade, nor
    vouched."""
    kinds = {wellformed.read(link.body)["kind"] for link in chains.rows_of(session, LEDGER, tenant_id=tenant_id)}
    formats = {ledger.format_of(entry) for entry in repository.entries_of_tenant(session, tenant_id=tenant_id)}
    return KIND not in kinds and formats == {FORMAT}
