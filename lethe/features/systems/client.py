"""`client.systems` and `client.system_tasks`, and calls of `client.deletion_requests` about systems."""

from lethe.client.methods import H, Keyed, Resource, call, pages
from lethe.features.systems import contract


class _NewSystem(contract.SystemIn, Keyed):
    pass


class Systems(Resource[H]):
    """Systems that learned from people or hold data about them."""

    create = call(contract.CREATE, _NewSystem)
    list = pages(contract.LIST)
    get = call(contract.GET)
    change = call(contract.CHANGE)
    retire = call(contract.RETIRE)


class SystemTasks(Resource[H]):
    """Tasks of systems outside of Lethe in deletion requests."""

    list = pages(contract.TASKS)
    get = call(contract.TASK)
    acknowledge = call(contract.ACKNOWLEDGE)
    close = call(contract.CLOSE)


class RequestSystems(Resource[H]):
    """Calls of `client.deletion_requests` about the systems that a request reaches."""

    systems = call(contract.OF_REQUEST)
    bundle = call(contract.BUNDLE)
