"""`/datasets:encodings`: how far uploads are whose rows go through a network."""

from fastapi import APIRouter

from app.api.calls import Call
from app.api.gateway import serves
from app.encoders import under_way
from lethe.contract import encodings as contract
from lethe.contract.encodings import EncodingOut, EncodingsOut

router = APIRouter()


@serves(router, contract.LIST)
def list_encodings(call: Call) -> EncodingsOut:
    found = under_way.listed(call.installation.settings, call.caller.tenant_id)
    return EncodingsOut(items=[EncodingOut.model_validate(one, from_attributes=True) for one in found])
