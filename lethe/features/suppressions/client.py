"""`client.suppressions`: calls that list and lift suppressions."""

from typing import Literal

from lethe.client.methods import H, Resource, call, pages
from lethe.features.suppressions import contract


class _Consent(contract.ConsentIn):
    reason: Literal["consent_given"] = "consent_given"


class Suppressions(Resource[H]):
    """`client.suppressions`: people who asked to be forgotten and whose rows are no longer accepted."""

    list = pages(contract.LIST)
    lift = call(contract.LIFT, _Consent)
