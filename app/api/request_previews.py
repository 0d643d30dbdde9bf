"""`/deletion-requests/{id}/preview`: what a request would erase, before anybody approves it."""

from fastapi import APIRouter

from app.api.calls import Call
from app.api.gateway import serves
from app.deletion import service as deletion
from app.unlearning import outlook
from app.unlearning.outlook import ModelOutlook
from lethe.contract import request_previews as contract
from lethe.contract.request_previews import DatasetToEraseOut, ModelToForgetOut, RequestPreviewOut

router = APIRouter()


@serves(router, contract.PREVIEW)
def preview_deletion_request(call: Call, request_id: str) -> RequestPreviewOut:
    with call.reading() as session:
        found = outlook.of_request(session, deletion.get(session, request_id))
        if found is None:
            return RequestPreviewOut(request_id=request_id, is_open=False, datasets=[], models=[])
        return RequestPreviewOut(
            request_id=request_id,
            is_open=True,
            datasets=[DatasetToEraseOut(dataset_id=one, rows=rows) for one, rows in sorted(found.rows.items())],
            models=[_to_response(one) for one in found.models],
        )


def _to_response(found: ModelOutlook) -> ModelToForgetOut:
    model, plan, wait = found.model, found.plan, found.wait
    return ModelToForgetOut(
        model_id=model.id,
        name=model.name,
        version=model.live_version,
        rows=found.rows,
        kind=plan.kind if plan else None,
        steps=plan.steps if plan else None,
        passes=found.passes,
        seconds=found.seconds,
        reason=wait.reason if wait else None,
        waiting=wait.requests if wait else 0,
        batch=model.max_requests,
        until=wait.until if wait else None,
    )
