"""Retention of deliveries, and of requests whose deliveries are pending."""

import sqlalchemy as sa

from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from lethe.contract.tenants import Policy
from tests.app.deletion import people
from tests.app.deletion.test_retention import DAY, found, pass_by

URL = "https://receiver.example/?who=jane"


def ask(installation: Installation, policy: Policy) -> str:
    """Submit a request, mark its notification as delivered, and return the request's id."""
    with installation.database.writing() as session:
        people.obey(session, policy)
        request = people.ask(session, "sub_a", policy, callback_urls=[URL]).request
    with installation.database.writing() as session:
        told = sa.update(WebhookDelivery).where(WebhookDelivery.request_id == request.id)
        session.execute(told.values(status="delivered", ended_at=request.created_at))
    return request.id


def test_deliveries_are_purged_with_their_request(installation: Installation) -> None:
    """When a request's details are purged, its deliveries are purged and the deliveries' keys are destroyed."""
    ask(installation, Policy(retain_details_days=30, report_seconds=0))
    with installation.database.reading() as session:
        letter = session.execute(sa.text("SELECT letter FROM webhook_deliveries LIMIT 1")).scalar_one()
    assert installation.vault.open(bytes(letter)) is not None
    pass_by(installation, 31 * DAY)
    assert installation.vault.open(bytes(letter)) is None
    with installation.database.reading() as session:
        assert session.scalars(sa.select(WebhookDelivery)).all() == []


def test_receiver_urls_are_sealed(installation: Installation) -> None:
    """Neither the database nor any file in the data folder contains a receiver's URL in the clear."""
    ask(installation, Policy())
    with installation.database.reading() as session:
        names = sa.inspect(session.get_bind()).get_table_names()
        rows = "".join(str(session.execute(sa.text(f"SELECT * FROM {name}")).all()) for name in names)
    files = b"".join(path.read_bytes() for path in installation.settings.data_dir.rglob("*") if path.is_file())
    # Behind the host, which is stored, any byte may follow.
    assert "receiver.example/?who" not in rows
    assert b"receiver.example/?who" not in files


def test_pending_deliveries_keep_the_details(installation: Installation) -> None:
    """A request's details are kept as long as one of its deliveries is pending."""
    request_id = ask(installation, Policy(retain_details_days=0, report_seconds=0))
    with installation.database.writing() as session:
        session.execute(sa.update(WebhookDelivery).values(status="pending", ended_at=None))
    pass_by(installation, DAY)
    assert found(installation, request_id).kept == "details"
