"""Background work of the `webhooks` feature: sending deliveries and deleting old ones."""

import datetime
import functools

from app.features.webhooks import dispatcher, repository, service
from app.installations import Installation
from app.operations.periodic_jobs import AT_ONCE, MAX_BATCHES, PeriodicJob


def begin_dispatching(installation: Installation) -> dispatcher.Dispatcher:
    """Start the dispatcher that sends deliveries for as long as the gateway runs."""
    settings = installation.settings
    dialects = {
        source: functools.partial(protocol.headers, settings) for source, protocol in service.protocols().items()
    }
    return dispatcher.Dispatcher(installation.database, installation.keys, settings, dialects=dialects)


def purge_deliveries(installation: Installation) -> None:
    """Delete deliveries that ended more than `webhook_keep_days` ago, after destroying the keys of their bodies."""
    keep = datetime.timedelta(days=installation.settings.webhook_keep_days)
    for _ in range(MAX_BATCHES):
        with installation.database.reading() as session:
            old = service.old(session, keep=keep, limit=AT_ONCE)
        if not old:
            return
        installation.vault.destroy(delivery.letter.key for delivery in old if delivery.letter.key)
        with installation.database.writing() as session:
            repository.drop(session, delivery_ids=[delivery.id for delivery in old])


GATEWAY_SERVICES = (begin_dispatching,)
WORKER_JOBS = (PeriodicJob(name="purge_deliveries", seconds=600, do=purge_deliveries),)
