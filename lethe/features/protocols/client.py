"""`client.agents` and `client.identity_issuers`: registered agents and trusted issuers. All calls require admin."""

from lethe.client.methods import H, Keyed, Resource, call, pages
from lethe.features.protocols import contract


class _NewAgent(contract.AgentIn, Keyed):
    pass


class Agents(Resource[H]):
    """Registered agents of the Data Rights Protocol."""

    register = call(contract.REGISTER_AGENT, _NewAgent)
    list = pages(contract.LIST_AGENTS)
    remove = call(contract.REMOVE_AGENT)


class _NewIssuer(contract.IdentityIssuerIn, Keyed):
    pass


class IdentityIssuers(Resource[H]):
    """Trusted issuers of identity statements."""

    create = call(contract.CREATE_ISSUER, _NewIssuer)
    list = pages(contract.LIST_ISSUERS)
    delete = call(contract.DELETE_ISSUER)
