"""`client.agents`: agents of the Data Rights Protocol that are let in; all of these need the scope admin."""

from lethe.contract import agents
from lethe.methods import H, Keyed, Resource, call, pages


class _NewAgent(agents.AgentIn, Keyed):
    pass


class Agents(Resource[H]):
    register = call(agents.REGISTER, _NewAgent)
    list = pages(agents.LIST)
    remove = call(agents.REMOVE)
