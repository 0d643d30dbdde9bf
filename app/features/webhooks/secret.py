"""Secret that signs a tenant's webhooks: derived from a key of the installation, with a generation for rotation."""

import datetime

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import actor, now
from app.db.tables import Tenant
from app.keys import Keys
from lethe.features.webhooks import signatures as signature
from lethe.features.webhooks.contract import SecretNotPresent

OVERLAP = datetime.timedelta(hours=24)
"""Time after a rotation during which the previous secret signs as well."""


def present(keys: Keys, tenant: Tenant) -> str:
    return _secret(keys, tenant.id, tenant.webhook_generation)


def signing(
    keys: Keys, *, tenant_id: str, generation: int, rotated_at: datetime.datetime | None, at: datetime.datetime
) -> list[str]:
    """Return the secrets that sign at `at`: the present one and, within `OVERLAP` of a rotation, the previous one."""
    generations = [generation]
    if rotated_at is not None and at < rotated_at + OVERLAP:
        generations.append(generation - 1)
    return [_secret(keys, tenant_id, number) for number in generations]


def rotate(session: Session, *, generation: int) -> Tenant:
    """Rotate the tenant's webhook secret from `generation` to the next. Repeating the call is a no-op.

    Raises `SecretNotPresent` if the present secret is of another generation.
    """
    tenant = session.get_one(Tenant, actor(session).tenant_id)
    if tenant.webhook_generation == generation + 1:
        return tenant
    if tenant.webhook_generation != generation:
        raise SecretNotPresent(generation=tenant.webhook_generation)
    tenant.webhook_generation, tenant.webhook_rotated_at = generation + 1, now(session)
    audit.record(session, "webhook_secret.rotated", tenant.id, generation=tenant.webhook_generation)
    return tenant


def _secret(keys: Keys, tenant_id: str, generation: int) -> str:
    return signature.secret_from(keys.webhook_secret(tenant_id, generation))
