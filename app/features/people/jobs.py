"""Periodic jobs of the `people` feature."""

import functools

from app.features.people import repository
from app.installations import Installation
from app.operations.periodic_jobs import AT_ONCE, PeriodicJob, in_batches


def forget_invitations(installation: Installation) -> None:
    """Delete expired invitations to the dashboard."""
    drop = functools.partial(repository.drop_invitations, limit=AT_ONCE)
    in_batches(installation, repository.is_any_invitation_over, drop)


WORKER_JOBS = (PeriodicJob(name="forget_invitations", seconds=600, do=forget_invitations),)
