"""Endpoint that requests a canary test of a model."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.access.idempotency import Once
from app.api import calls, gateway, models
from app.features.canary_tests import service
from lethe.features.canary_tests import contract

router = APIRouter()


@gateway.serves(router, contract.ASK)
def audit(call: calls.Call, model_id: str, once: Once) -> JSONResponse:
    return models.request_run(call, model_id, once, service.ask)


MOUNTS = (gateway.Mount(router=router),)
