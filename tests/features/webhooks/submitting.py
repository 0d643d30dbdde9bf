"""Requests whose receivers want to be notified."""

from typing import Any

from app.db import Actor
from app.db.tables import DeletionRequest
from app.deletion import service as deletion
from app.deletion.service import RequestDraft, Submitted
from app.installations import Installation
from lethe.contract.tenants import Policy

URL = "https://receiver.example/hook?token=t0ken"


def asked(installation: Installation, by: Actor, subject_id: str = "nobody", **changed: Any) -> RequestDraft:
    usual = {"policy": Policy(), "discreet": False, "dataset_ids": None, "regulation": "gdpr", "ground": None}
    usual |= {"submitted_at": None, "external_id": None, "metadata": {}, "callback_urls": (URL,)}
    return RequestDraft(by=by, subject_ref=installation.keys.subject_ref(by.tenant_id, subject_id), **(usual | changed))


def submit(installation: Installation, by: Actor, *wanted: RequestDraft) -> list[DeletionRequest]:
    with installation.database.writing(by=by) as session:
        made = deletion.submit_all(session, wanted)
    return [one.request for one in made if isinstance(one, Submitted)]
