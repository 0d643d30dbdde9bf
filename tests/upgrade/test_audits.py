"""Audits that a data folder of revision 0001 keeps."""

import tarfile
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.db import Database, migrate
from app.db.tables import Model, Run
from app.privacy import audit
from app.privacy.audit import Observed
from app.privacy.mechanism import Mechanism
from tests.upgrade.test_data_folder import FIXTURE


def test_kept_audits_are_restated(tmp_path: Path) -> None:
    """What an audit of the first layout proves is said as today: of the same counts, never more than is certified."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    database = Database(f"sqlite:///{tmp_path / 'data' / 'lethe.db'}")
    migrate.upgrade(database.engine)
    with database.reading() as session:
        kept = session.execute(sa.select(Run.audit, Model).join(Model).where(Run.audit.is_not(None))).all()
    database.close()
    assert kept
    for said, model in kept:
        assert said["error"] == audit.ERROR
        assert said["mu_lower_bound"] <= said["mu"]
        again = Observed.from_json(said).to_json(Mechanism.from_json(model.mechanism), delta=model.delta)
        assert said.keys() == again.keys()
        for name, value in again.items():
            assert said[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value)
