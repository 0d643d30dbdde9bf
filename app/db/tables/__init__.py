"""The whole schema, a module for the tables of each room.

Times are aware UTC; ids are prefixed opaque strings; no subject id is here.
"""

from app.db.tables.access import (
    ApiKey,
    DashboardSession,
    IdempotentAnswer,
    InstallationIdentity,
    SavedView,
    Tenant,
    User,
)
from app.db.tables.accounting import Certificate, LedgerEntry, LedgerLink
from app.db.tables.audit import AuditEntry, Checkpoint
from app.db.tables.catalogue import Export, Model, Version
from app.db.tables.deletion import (
    DeletionRequest,
    IdentityIssuer,
    RequestAlias,
    RequestAttachment,
    RequestEvent,
    RequestNote,
    Suppression,
    UsedStatement,
)
from app.db.tables.encoders import Network, NetworkPiece
from app.db.tables.leaving import LeavingCount
from app.db.tables.protocols import Agent
from app.db.tables.rows import Addition, Dataset, Record
from app.db.tables.table import Moment, Owned, Table, Text, new_id
from app.db.tables.unlearning import CUT_OFF, OWED, Erasure, Rehearsal, RequestModel, Run
from app.db.tables.webhooks import WebhookDelivery

__all__ = [
    "CUT_OFF",
    "OWED",
    "Addition",
    "Agent",
    "ApiKey",
    "AuditEntry",
    "Certificate",
    "Checkpoint",
    "DashboardSession",
    "Dataset",
    "DeletionRequest",
    "Erasure",
    "Export",
    "IdempotentAnswer",
    "IdentityIssuer",
    "InstallationIdentity",
    "LeavingCount",
    "LedgerEntry",
    "LedgerLink",
    "Model",
    "Moment",
    "Network",
    "NetworkPiece",
    "Owned",
    "Record",
    "Rehearsal",
    "RequestAlias",
    "RequestAttachment",
    "RequestEvent",
    "RequestModel",
    "RequestNote",
    "Run",
    "SavedView",
    "Suppression",
    "Table",
    "Tenant",
    "Text",
    "UsedStatement",
    "User",
    "Version",
    "WebhookDelivery",
    "new_id",
]
