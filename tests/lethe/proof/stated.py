import copy
import json
from typing import Any

import pytest

from lethe.proof import certificate
from lethe.proof.accountant import Exposure, Run
from lethe.proof.canary_test import CanaryPlan, Observed
from lethe.proof.errors import PrivacyError
from lethe.proof.guarantees import Evidence
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from tests.lethe.proof import lanes

MECHANISM = Mechanism(
    objective=Objective.LOGISTIC_REGRESSION,
    num_slots=1000,
    num_classes=2,
    l2=0.05,
    step_size=2.0,
    noise_scale=0.1,
    radius=20.0,
    learn_steps=50,
)
HISTORY = (Run(steps=50), Run(steps=7, records=1), Run(steps=7), Run(steps=9, records=3))
RELEASES = ((7, 2), (50, 1))
DELETED = "(deleted)"


def evidence(**changed: Any) -> Evidence:
    """Return evidence of two records that were deleted after 64 steps of this model. One of the person's records also
    fed another model."""
    parts: dict[str, Any] = {
        "mechanism": MECHANISM,
        "history": HISTORY,
        "records": 2,
        "steps_present": 64,
        "exposures": {
            "mdl_1": Exposure(mechanism=MECHANISM, records=2, releases=RELEASES, stretches=2),
            "mdl_2": Exposure(mechanism=MECHANISM, records=1, releases=((50, 1),), stretches=2),
        },
        "delta": 1e-4,
    }
    return Evidence(**parts | changed)


def observed(made: Evidence, **changed: Any) -> Observed:
    """Return a plausible observation of the lanes in the last run of the history."""
    *before, last = (run.steps for run in made.history)
    plan = CanaryPlan(lanes=256, steps_before=sum(before), steps=last)
    return lanes.observed(**{"plan": plan, "mechanism": MECHANISM} | changed)


def statement(made: Evidence | None = None, *, kind: str = "unlearn", audited: bool = True) -> dict[str, Any]:
    """Return a true statement in the form in which a certificate's holder reads it."""
    made = made or evidence()
    document = certificate.statement(
        certificate_id="crt_1",
        issued_at="2025-05-05T12:00:00+00:00",
        request={"id": "dr_1", "submitted_at": "2025-05-05T11:00:00+00:00", "records": made.records},
        model={"id": "mdl_1", "version": 4, "weights_sha256": "ab" * 32},
        dataset={"id": "ds_1", "revision": 2, "digest": "cd" * 32},
        run={"id": "run_1", "kind": kind, "steps": made.history[-1].steps},
        epsilon=1.0,
        ledger={"sequence": 4, "hash": "ef" * 32},
        evidence=made,
        observed=observed(made) if audited else None,
    )
    read: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    return read


def altered(path: str, value: Any) -> dict[str, Any]:
    """Return the statement with one part replaced, added or removed."""
    document = copy.deepcopy(statement())
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    place: Any = document
    for key in parents:
        place = place[key]
    if value is DELETED:
        del place[last]
    else:
        place[last] = value
    return document


def refusal(document: Any) -> str:
    with pytest.raises(PrivacyError) as refused:
        certificate.check(document)
    return str(refused.value)


def audited(**changed: Any) -> dict[str, Any]:
    """Return the statement with a canary test in which the given values are changed."""
    shown = observed(evidence(), **changed).to_json(MECHANISM, delta=evidence().delta)
    return altered("audit", json.loads(json.dumps(shown)))
