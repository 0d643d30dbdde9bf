"""Installations without a judge: a gate is refused, and a stored gate holds versions back."""

import pytest

from app.catalogue import service
from app.db.tables import Model, Version
from app.installations import Installation
from lethe import sockets
from lethe.contract.models import QualityIn
from lethe.contract.problems import ModelHeld, PreconditionFailed
from lethe.contract.sets import Metric
from lethe.proof.calibration import ModelSettings, mechanism_for
from lethe.proof.losses import Objective


@pytest.fixture(autouse=True)
def without_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "plugs", lambda *_names: ())


def test_a_gate_is_refused_without_a_judge() -> None:
    """A model with a gate cannot be created unless an installed feature can judge the gate. A model without a gate can
    be created."""
    mechanism = mechanism_for(
        ModelSettings(epsilon=1.0, delta=1e-4), num_slots=1000, num_classes=2, objective=Objective.LOGISTIC_REGRESSION
    )
    with pytest.raises(PreconditionFailed) as refused:
        service.stored_gate(QualityIn(metric=Metric.AUC, threshold=0.5), mechanism, is_evaluated=True)
    assert refused.value.errors[0].path == "quality"
    assert service.stored_gate(None, mechanism, is_evaluated=True) is None


@pytest.mark.parametrize("gate", [None, {"metric": "auc", "threshold": 0.5, "on_breach": "publish_degraded"}])
def test_a_stored_gate_without_a_judge_holds_versions_back(installation: Installation, gate: object) -> None:
    """A version is held back if no installed feature can judge its model's gate, whatever action the gate specifies for
    a breach."""
    model, version = Model(id="mdl_1", quality=gate), Version(model_id="mdl_1", number=1, metrics={"auc": 0.9})
    with installation.database.reading() as session:
        service.judge_version(session, model, version)
    assert (version.degraded, version.held) == (gate is not None,) * 2
    if gate is None:
        service.require_served(version)
    else:
        with pytest.raises(ModelHeld):
            service.require_served(version)
