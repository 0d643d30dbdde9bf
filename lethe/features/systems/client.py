"""`client.systems`, `client.system_tasks`, and the calls of `client.deletion_requests` that concern systems."""

from lethe.client.methods import H, Keyed, Resource, call, pages
from lethe.features.systems import contract


class _NewSystem(contract.SystemIn, Keyed):
    pass


class Systems(Resource[H]):
    """Systems that were trained on people's data or hold data about them."""

    create = call(contract.CREATE, _NewSystem)
    list = pages(contract.LIST)
    get = call(contract.GET)
    change = call(contract.CHANGE)
    retire = call(contract.RETIRE)


class SystemTasks(Resource[H]):
    """Deletion requests' tasks for systems outside Lethe."""

    list = pages(contract.TASKS)
    get = call(contract.TASK)
    acknowledge = call(contract.ACKNOWLEDGE)
    close = call(contract.CLOSE)


class RequestSystems(Resource[H]):
    """Methods of `client.deletion_requests` that concern the systems that a request reaches."""

    systems = call(contract.OF_REQUEST)
    bundle = call(contract.BUNDLE)
