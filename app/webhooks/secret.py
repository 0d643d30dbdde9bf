"""The secret that a tenant's webhooks are signed with: derived from a key of the installation, and rotated."""

import datetime

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import actor, now
from app.db.tables import Tenant
from app.keys import Keys
from lethe.contract.problems import SecretNotPresent
from lethe.proof import webhooks as signature

OVERLAP = datetime.timedelta(hours=24)
"""Time after a rotation in which the secret before signs too."""


def present(keys: Keys, tenant: Tenant) -> str:
    return _secret(keys, tenant.id, tenant.webhook_generation)


def signing(
    keys: Keys, *, tenant_id: str, generation: int, rotated_at: datetime.datetime | None, at: datetime.datetime
) -> list[str]:
    """The secrets that sign at this time: the present one, and for a day the one before."""
    generations = [generation]
    if rotated_at is not None and at < rotated_at + OVERLAP:
        generations.append(generation - 1)
    return [_secret(keys, tenant_id, one) for one in generations]


def rotate(session: Session, *, generation: int) -> Tenant:
    """Let the next secret of the session's tenant follow the present one, which is `generation`; once, if repeated.

    Raises `SecretNotPresent`.
    """
    tenant = session.get_one(Tenant, actor(session).tenant_id)
    if tenant.webhook_generation == generation + 1:
        return tenant
    if tenant.webhook_generation != generation:
        raise SecretNotPresent(f"The present secret is {tenant.webhook_generation}; GET /v1/webhook-secret shows it.")
    tenant.webhook_generation, tenant.webhook_rotated_at = generation + 1, now(session)
    audit.record(session, "webhook_secret.rotated", tenant.id, generation=tenant.webhook_generation)
    return tenant


def _secret(keys: Keys, tenant_id: str, generation: int) -> str:
    return signature.secret_from(keys.webhook_secret(tenant_id, generation))
