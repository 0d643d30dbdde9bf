import datetime

import pytest
import sqlalchemy as sa

from app.db import Actor, now
from app.db.tables import AuditEntry, Tenant
from app.features.webhooks import service
from app.installations import Installation
from app.keys import Keys
from lethe.features.webhooks.contract import SecretNotPresent


def test_a_secret_is_derived(installation: Installation) -> None:
    """Each tenant and each generation has a different secret, which is the same in every process and is never
    stored."""
    keys = Keys(installation.settings.data_dir / "keys")
    rows = [Tenant(id=name, webhook_generation=number) for name in ("ten_1", "ten_11") for number in (1, 11)]
    secrets = {service.present(keys, row) for row in rows}
    assert len(secrets) == 4
    assert secrets == {service.present(installation.keys, row) for row in rows}
    assert (installation.settings.data_dir / "keys" / "webhook.key").stat().st_mode & 0o777 == 0o600


def test_both_secrets_sign_for_a_day_after_a_rotation(installation: Installation, by: Actor) -> None:
    """After a rotation, calls are signed with the new secret first and, for a day, with the previous secret too."""
    with installation.database.writing(by=by) as session:
        before = service.present(installation.keys, session.get_one(Tenant, by.tenant_id))
        tenant = service.rotate(session, generation=1)
        rotated_at = tenant.webhook_rotated_at
        assert rotated_at is not None
        assert abs(now(session) - rotated_at) < datetime.timedelta(seconds=10)
    present = service.present(installation.keys, tenant)
    assert present != before

    def signing(after: datetime.timedelta) -> list[str]:
        return service.signing(
            installation.keys, tenant_id=tenant.id, generation=2, rotated_at=rotated_at, at=rotated_at + after
        )

    assert signing(datetime.timedelta(0)) == signing(datetime.timedelta(hours=23, minutes=59)) == [present, before]
    assert signing(datetime.timedelta(hours=24)) == [present]
    never = service.signing(installation.keys, tenant_id=tenant.id, generation=1, rotated_at=None, at=rotated_at)
    assert never == [before]


def test_a_repeated_rotation_is_a_no_op(installation: Installation, by: Actor) -> None:
    """Repeating a rotation from the same generation is a no-op. A rotation from another generation is refused."""
    for _ in range(2):
        with installation.database.writing(by=by) as session:
            assert service.rotate(session, generation=1).webhook_generation == 2
    for wrong in (3, 5):
        with pytest.raises(SecretNotPresent), installation.database.writing(by=by) as session:
            service.rotate(session, generation=wrong)
    with installation.database.reading() as session:
        entries = session.scalars(sa.select(AuditEntry).where(AuditEntry.action == "webhook_secret.rotated")).all()
    assert [entry.detail for entry in entries] == [{"generation": 2}]
