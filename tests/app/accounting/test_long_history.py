"""Ledgers of models with long histories: the verifier recomputes what the accountant recorded."""

import datetime
from collections.abc import Callable
from typing import Any

from app.accounting import ledger, repository
from app.catalogue import service as catalogue
from app.db.tables import Model, Run, Version
from app.installations import Installation
from lethe.proof import accountant, guarantees
from lethe.proof.accountant import Chain
from lethe.verification import ledgers
from tests.stored import versions_in

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def publish(installation: Installation, model_id: str, *, version: int, steps: int) -> Chain:
    """Record a published version whose run forgot one record, without executing the run's steps; return the model's
    chain."""
    with installation.database.writing() as session:
        model = session.get_one(Model, model_id)
        owned = {"tenant_id": model.tenant_id, "dataset_id": model.dataset_id, "revision": version}
        run = Run(
            id=f"run_{version}",
            kind="unlearn",
            status="published",
            model_id=model_id,
            version_id=f"ver_{version}",
            first_step=repository.chain_steps(session, model_id=model_id),
            steps_total=steps,
            steps_done=steps,
            records=1,
            reason="requested",
            worker="w",
            lease_expires_at=NOW,
            started_at=NOW,
            **owned,
        )
        live = session.query(Version).filter_by(model_id=model_id, number=version - 1).one()
        about = {column.key: getattr(live, column.key) for column in Version.__table__.columns}
        about |= {"id": run.version_id, "number": version, "revision": version, "run_id": run.id}
        session.add(run)
        session.flush()
        made = Version(**about)
        session.add(made)
        session.flush()
        history = ledger.history_of(session, model_id=model_id, mechanism=catalogue.mechanism_of(model))
        ledger.post(session, model=model, run=run, version=made, chain=history.chain, requests=[], at=NOW)
        return history.chain


def test_a_ledger_with_dropped_runs_verifies(
    installation: Installation,
    new_dataset: Callable[..., dict[str, Any]],
    new_model: Callable[..., dict[str, Any]],
    work: Callable[[], int],
) -> None:
    """The verifier drops the same old runs as the accountant and computes the same numbers. The model's large radius
    ensures that the dropped runs noticeably affect these numbers."""
    dataset = new_dataset(rows=240)
    model = new_model(dataset["id"], l2=0.3, noise_scale=0.02, radius=1e9)
    work()
    with installation.database.reading() as session:
        chosen = catalogue.mechanism_of(session.get_one(Model, model["id"]))
    whole = accountant.advance(accountant.started(chosen), accountant.Run(steps=chosen.learn_steps))
    differs = []
    for version in range(2, 102):
        posted = publish(installation, model["id"], version=version, steps=3)
        whole = accountant.advance(whole, accountant.Run(steps=3, records=1))
        assert posted.influence >= whole.influence * (1 - 1e-12)
        differs.append(posted.influence > whole.influence * (1 + guarantees.TOLERANCE))
    assert any(differs)
    with installation.database.reading() as session:
        report = ledgers.verify(repository.all_entries(session), versions_in(session))
    assert report.entries == 101
