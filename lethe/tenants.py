"""`client.tenants`: the tenants of an installation (scope operator), and one's own policy (scope admin).

A tenant is not made again by itself: after a lost answer the name is taken, and the key of its admin is lost.
"""

from lethe.contract import tenants
from lethe.methods import H, Resource, call, pages


class Tenants(Resource[H]):
    create = call(tenants.CREATE)
    list = pages(tenants.LIST)
    get = call(tenants.GET)
    own = call(tenants.OWN)
    set_policy = call(tenants.CHANGE_OWN)
