"""`client.users`: the people who log in to the dashboard; all of these need the scope admin.

An invitation is not made again by itself: after a lost answer, invite the person again.
"""

from lethe.contract import users
from lethe.methods import H, Resource, call, pages


class Users(Resource[H]):
    create = call(users.CREATE)
    list = pages(users.LIST)
    get = call(users.GET)
    change = call(users.CHANGE)
    invite = call(users.INVITE)
    disable = call(users.DISABLE)
