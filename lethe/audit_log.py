"""`client.audit_log`: who did what; all of these need the scope admin."""

from lethe.contract import audit_log
from lethe.methods import H, Resource, call, pages


class AuditLog(Resource[H]):
    list = pages(audit_log.LIST)
    checkpoints = pages(audit_log.CHECKPOINTS)
    verify = call(audit_log.VERIFY)
