"""`client.system_tasks`, with the call that reports on a search of stores."""

from lethe.client.methods import H, call
from lethe.features.stores import contract
from lethe.features.systems import client as systems


class SystemTasks(systems.SystemTasks[H]):
    __doc__ = systems.SystemTasks.__doc__
    search_report = call(contract.REPORT)
