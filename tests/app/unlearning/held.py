"""Runs that a test claims in place of a worker."""

from typing import Any

import numpy as np
import sqlalchemy as sa

from app.accounting.certificates import sha256
from app.db.tables import Dataset, Model
from app.installations import Installation
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from app.vault import sealing
from tests.lethe.proof import lanes


def forget_pauses(installation: Installation) -> None:
    with installation.database.writing() as session:
        session.execute(sa.update(Model).values(not_before=None))
        session.execute(sa.update(Dataset).values(not_before=None))


def publish(installation: Installation, claimed: ClaimedRun, **changed: Any) -> None:
    """Publish a version as a worker does after the chain has run; the rows are already erased."""
    assert claimed.mechanism
    sealed = sealing.to_safetensors(np.zeros((1, 4)))
    installation.weights.put(claimed.version_id, sealed)
    assert claimed.audit
    ran = {
        "first_step_ran": claimed.first_step,
        "steps_ran": claimed.steps,
        "mechanism_ran": claimed.mechanism,
        "weights_sha256": sha256(sealed),
        "metrics": {},
        "observed": lanes.observed(claimed.audit, claimed.mechanism),
    }
    with installation.database.writing() as session:
        unlearning.publish(session, installation.keys, run_id=claimed.run_id, **ran | changed)


def status_of(installation: Installation, claimed: ClaimedRun | None) -> str:
    assert claimed
    with installation.database.reading() as session:
        return unlearning.get(session, claimed.run_id).status
