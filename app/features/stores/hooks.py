"""Hooks of the `stores` feature."""

from app.features.stores import service
from app.features.systems.systems import TaskEvidence

TASK_EVIDENCE: tuple[TaskEvidence, ...] = (service.task_evidence,)
