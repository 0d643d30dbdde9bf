"""`client.identity_issuers`: issuers whose statements about identity are believed; these need the scope admin."""

from lethe.contract import identity_issuers
from lethe.methods import H, Keyed, Resource, call, pages


class _NewIssuer(identity_issuers.IdentityIssuerIn, Keyed):
    pass


class IdentityIssuers(Resource[H]):
    create = call(identity_issuers.CREATE, _NewIssuer)
    list = pages(identity_issuers.LIST)
    delete = call(identity_issuers.DELETE)
