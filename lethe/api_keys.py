"""`client.api_keys`: who may call, and what; all of these need the scope admin.

What is made here is not made again by itself: after a lost answer, revoke the key that was never seen.
"""

from lethe.contract import api_keys
from lethe.methods import H, Resource, call, pages


class ApiKeys(Resource[H]):
    create = call(api_keys.CREATE)
    list = pages(api_keys.LIST)
    get = call(api_keys.GET)
    rotate = call(api_keys.ROTATE)
    revoke = call(api_keys.REVOKE)
