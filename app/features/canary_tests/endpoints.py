"""Endpoint that requests a canary test of a model."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.access.idempotency import Once
from app.api.calls import Call
from app.api.gateway import Mount, serves
from app.api.models import request_run
from app.features.canary_tests import service
from lethe.features.canary_tests import contract

router = APIRouter()


@serves(router, contract.ASK)
def audit(call: Call, model_id: str, once: Once) -> JSONResponse:
    return request_run(call, model_id, once, service.ask)


MOUNTS = (Mount(router=router),)
