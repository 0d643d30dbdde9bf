"""What a data folder of revision 0001 keeps of audits and certificates."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.db import Database, migrate
from app.db.tables import Certificate, Model, Run
from lethe import verification
from lethe.errors import CertificateInvalid
from lethe.proof import audit
from lethe.proof.audit import Observed
from lethe.proof.mechanism import Mechanism
from tests.upgrade.test_data_folder import FIXTURE


@pytest.fixture
def upgraded(tmp_path: Path) -> Iterator[Database]:
    """The folder's database with this release's schema."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    database = Database(f"sqlite:///{tmp_path / 'data' / 'lethe.db'}")
    migrate.upgrade(database.engine)
    yield database
    database.close()


def test_kept_audits_are_restated(upgraded: Database) -> None:
    """What an audit of the first layout proves is said as today: of the same counts, never more than is certified."""
    with upgraded.reading() as session:
        kept = session.execute(sa.select(Run.audit, Model).join(Model).where(Run.audit.is_not(None))).all()
    assert kept
    for said, model in kept:
        assert said["error"] == audit.ERROR
        assert said["mu_lower_bound"] <= said["mu"]
        again = Observed.from_json(said | {"visits": 0.0}).to_json(
            Mechanism.from_json(model.mechanism), delta=model.delta
        )
        assert said.keys() == again.keys() - {"visits"}
        for name in said:
            value = again[name]
            assert said[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value)


def test_kept_certificates_are_named_as_what_they_are(upgraded: Database, tmp_path: Path) -> None:
    """A certificate of the first format is refused in one sentence that says so, though its signature holds."""
    key = json.loads((tmp_path / "data" / "keys" / "signing.jwk").read_text())
    public = {name: value for name, value in key.items() if name != "d"}
    with upgraded.reading() as session:
        kept = session.scalars(sa.select(Certificate.jws)).all()
    assert kept
    for compact in kept:
        with pytest.raises(CertificateInvalid, match="only releases that signed it verify"):
            verification.verify(compact, {"keys": [public]})
