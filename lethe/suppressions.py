"""`client.suppressions`: who asked to be forgotten, and is not taken in again."""

from typing import Literal

from lethe.contract import suppressions
from lethe.methods import H, Resource, call, pages


class _Consent(suppressions.ConsentIn):
    reason: Literal["consent_given"] = "consent_given"


class Suppressions(Resource[H]):
    list = pages(suppressions.LIST)
    lift = call(suppressions.LIFT, _Consent)
