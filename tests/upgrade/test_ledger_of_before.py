"""Ledger entries of the first layout: they are vouched for once, at the upgrade, and never again."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from joserfc.jwk import KeySet

from app import installations
from app.accounting import anchors, certificates, exports, ledger
from app.audit import checkpoints
from app.audit.chains import LEDGER
from app.config import Settings
from app.db import now
from app.db.tables import Certificate, LedgerEntry, LedgerLink, Model, Run, Version, new_id
from app.installations import Installation
from app.unlearning import service as unlearning
from lethe.contract.problems import LedgerCorrupt, RunNotCancellable
from lethe.verification import verify_ledger
from lethe.verification.chains import GENESIS, canonical, link_hash
from tests.upgrade.test_adoption import FIXTURE
from worker import runner

TENANT = "ten_default"


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """The folder, upgraded, and nothing run since."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    settings = Settings(data_dir=tmp_path / "data")
    installations.set_up(settings)
    with installations.opened(settings) as opened:
        yield opened


def verified(installation: Installation) -> Any:
    with installation.database.reading() as session:
        return anchors.verify_tenant(session, KeySet([installation.keys.signing_key]), tenant_id=TENANT)


def forge(installation: Installation, **said: Any) -> None:
    """Publish a version with an entry that claims to be of the first layout, hashed, linked and, as a worker would,
    signed."""
    with installation.database.writing() as session:
        model = session.scalars(sa.select(Model).where(Model.live_version == 2)).one()
        last = session.get_one(LedgerEntry, (model.id, 2))
        run = session.scalars(sa.select(Run).where(Run.model_id == model.id, Run.status == "published").limit(1)).one()
        columns = {column.key: getattr(run, column.key) for column in sa.inspect(Run).column_attrs}
        session.add(Run(**columns | {"id": "run_forged", "version_id": "ver_forged"}))
        session.flush()
        body = canonical(json.loads(last.body) | {"sequence": 3, "version": 3, "records": 0} | said)
        session.add(
            Version(
                id="ver_forged",
                model_id=model.id,
                number=3,
                status="retired",
                run_id="run_forged",
                revision=0,
                weights_sha256=json.loads(body)["weights_sha256"],
                metrics={},
                published_at=now(session),
            )
        )
        hashed = link_hash(last.hash, body)
        session.add(LedgerEntry(model_id=model.id, sequence=3, body=body, previous_hash=last.hash, hash=hashed))
        ledger.link(session, tenant_id=TENANT, kind="entry", model_id=model.id, entry=3, hash=hashed)
        checkpoints.checkpoint_now(session, installation.keys, LEDGER, tenant_id=TENANT)


def test_entries_of_before_are_vouched_for(installation: Installation, tmp_path: Path) -> None:
    """Their hashes are verified, their numbers are said not to be recomputed, and that they were there is signed; an
    export says the same to a stranger."""
    found = verified(installation)
    assert (found.report.models, found.report.entries, found.report.not_recomputed) == (2, 0, 3)
    assert found.signed == found.links == 4
    export = tmp_path / "ledger.jsonl"
    export.write_bytes(
        b"".join(
            exports.written(installation.database.reading, KeySet([installation.keys.signing_key]), tenant_id=TENANT)
        )
    )
    assert verify_ledger(export, certificates.public_keys(installation.keys)).report == found.report


def test_an_upgrade_vouches_once(installation: Installation) -> None:
    """What is set up again is not vouched for again, before and after something was published."""
    for _ in range(2):
        installations.set_up(installation.settings)
        assert verified(installation).report.not_recomputed == 3
        while runner.run_next(installation, worker="w"):
            pass
    with installation.database.reading() as session:
        kinds = [json.loads(link.body)["kind"] for link in session.scalars(sa.select(LedgerLink))]
    assert kinds.count("upgraded") == 1


def test_an_entry_that_claims_to_be_of_before_is_refused(installation: Installation) -> None:
    """One that is added after the upgrade is named, though every hash follows and the head is signed."""
    forge(installation)
    with pytest.raises(LedgerCorrupt, match=r"ledger entry 3: its format is an earlier one, and no upgrade vouched"):
        verified(installation)


def test_what_vouches_cannot_be_used_again(installation: Installation) -> None:
    """Neither the link of the upgrade, said once more, nor one that nobody signed, vouches for what came later."""
    with installation.database.reading() as session:
        said = json.loads(session.get_one(LedgerLink, (TENANT, 4)).body)
    for jws in (said["jws"], "e30.e30.e30"):
        with installation.database.writing() as session:
            ledger.link(session, tenant_id=TENANT, kind="upgraded", jws=jws)
        with pytest.raises(LedgerCorrupt, match=r"ledger link 5"):
            verified(installation)


def test_an_entry_of_before_that_was_changed_is_refused(installation: Installation) -> None:
    """What was vouched for is its hash: a body with other numbers, hashed anew, is another entry."""
    with installation.database.reading() as session:
        entries = [
            LedgerEntry(**{name: getattr(entry, name) for name in ("model_id", "sequence", "body", "previous_hash")})
            for entry in session.scalars(sa.select(LedgerEntry).order_by(LedgerEntry.model_id, LedgerEntry.sequence))
        ]
    forged = next(entry for entry in entries if entry.sequence == 1)
    forged.body = canonical(json.loads(forged.body) | {"steps": 1})
    with installation.database.engine.connect() as connection:
        connection.exec_driver_sql("DROP TRIGGER ledger_entries_no_update")
        previous = GENESIS
        for entry in [one for one in entries if one.model_id == forged.model_id]:
            hashed = link_hash(previous, entry.body)
            values = {"body": entry.body, "previous_hash": previous, "hash": hashed}
            mine = sa.and_(LedgerEntry.model_id == entry.model_id, LedgerEntry.sequence == entry.sequence)
            connection.execute(sa.update(LedgerEntry).where(mine).values(values))
            previous = hashed
        connection.commit()
    with pytest.raises(LedgerCorrupt, match=r"ledger entry 1: its format is an earlier one"):
        verified(installation)


def test_learning_again_cannot_be_cancelled(installation: Installation) -> None:
    """A chain of before is never gone on with, also where whoever was to learn again was told not to."""
    with installation.database.writing() as session:
        model = session.scalars(sa.select(Model).where(Model.live_version == 2)).one()
        assert model.wanted == "relearn"
        at_once = now(session)
        run = Run(
            id=new_id("run"),
            tenant_id=model.tenant_id,
            kind="relearn",
            status="running",
            dataset_id=model.dataset_id,
            model_id=model.id,
            revision=1,
            version_id=new_id("ver"),
            steps_total=1,
            steps_done=0,
            records=0,
            reason="",
            worker="w",
            lease_expires_at=at_once,
            started_at=at_once,
        )
        session.add(run)
        session.flush()
        with pytest.raises(RunNotCancellable, match="accounted for in an earlier format"):
            unlearning.cancel(session, run)
        run.status, model.wanted = "failed", None
    while runner.run_next(installation, worker="w"):
        pass
    assert verified(installation).report.not_recomputed == 3


def test_what_was_published_before_still_counts(installation: Installation) -> None:
    """The certificates of whoever is forgotten after the upgrade count the versions of before as seen."""
    while runner.run_next(installation, worker="w"):
        pass
    with installation.database.reading() as session:
        statements = [certificates.statement_in(jws) for jws in session.scalars(sa.select(Certificate.jws))]
    [signed] = [statement for statement in statements if statement["format"] == "lethe-certificate/2"]
    [exposure] = signed["evidence"]["exposures"].values()
    assert exposure["releases"] == [[exposure["mechanism"]["learn_steps"], 1]]
    [seen] = [one for one in signed["guarantees"] if one["notion"] == "adaptive"]
    assert seen["epsilon"] > 0
