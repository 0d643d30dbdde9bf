"""`client.webhooks`: payloads sent to callback receivers, and the secret that signs them."""

from lethe.client.methods import H, Resource, call, pages
from lethe.features.webhooks import contract as webhook_deliveries


class Webhooks(Resource[H]):
    """Methods of `client.webhooks`: webhook deliveries and the secret that signs them."""

    list = pages(webhook_deliveries.LIST)
    get = call(webhook_deliveries.GET)
    replay = call(webhook_deliveries.REPLAY)
    replay_all = call(webhook_deliveries.REPLAY_ALL)
    secret = call(webhook_deliveries.SECRET)
    rotate_secret = call(webhook_deliveries.ROTATE_SECRET)
