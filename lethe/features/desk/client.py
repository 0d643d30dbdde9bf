"""`client.deletion_requests` calls for casework: assignment, notes, attachments and replies."""

from lethe.client.methods import H, Resource, call, pages, upload_one
from lethe.contract.fields import Form
from lethe.features.desk import contract


class RequestCases(Resource[H]):
    assign = call(contract.ASSIGN)
    assignees = pages(contract.ASSIGNEES)
    add_note = call(contract.ADD_NOTE)
    notes = pages(contract.NOTES)
    attach = upload_one(contract.ATTACH, Form)
    attachments = pages(contract.ATTACHMENTS)
    attachment = call(contract.ATTACHMENT)
    delete_attachment = call(contract.DELETE_ATTACHMENT)
    reply = call(contract.REPLY)
    record_sent_reply = call(contract.RECORD_SENT_REPLY)
    sent_replies = pages(contract.SENT_REPLIES)
    evidence_pack = call(contract.EVIDENCE_PACK)
