"""`client.users`: people who log in to the dashboard. All calls require the admin scope.

The client never repeats an invitation automatically. If the response was lost, invite the person again.
"""

from lethe.client.methods import H, Resource, call, pages
from lethe.features.people import contract as users


class Users(Resource[H]):
    """Methods of `client.users`."""

    create = call(users.CREATE)
    list = pages(users.LIST)
    get = call(users.GET)
    change = call(users.CHANGE)
    invite = call(users.INVITE)
    disable = call(users.DISABLE)
