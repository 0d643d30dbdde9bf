"""Invariants of an installation that must hold after any fault."""

from collections import Counter
from itertools import pairwise

import numpy as np
import sqlalchemy as sa
from joserfc.jwk import KeySet

from app.accounting import certificates, repository as accounting_repository
from app.audit import repository as audit_repository
from app.audit.checkpoints import AUDIT
from app.db.tables import (
    Certificate,
    Dataset,
    DeletionRequest,
    Erasure,
    Model,
    Record,
    RequestEvent,
    RequestModel,
    Run,
    Suppression,
    Version,
)
from app.deletion.search_repository import ANYWHERE
from app.installations import Installation
from lethe import verification
from lethe.contract.sets import EventKind
from lethe.verification import ledgers
from tests.settled import is_settled
from tests.stored import rows_of, versions_in


def assert_all_done_once(installation: Installation) -> None:
    """Check that every request completed once, every row is kept or erased as recorded, no version line has forked, no
    old weights remain, the ledger and audit logs verify, and people with requests are not added again."""
    with installation.database.reading() as session:
        assert set(session.scalars(sa.select(Run.status))) <= {"published", "abandoned", "failed"}
        ledgers.verify(accounting_repository.all_entries(session), versions_in(session))
        for tenant_id in audit_repository.tenant_ids(session):
            entries = audit_repository.all_entries(session, tenant_id=tenant_id)
            signed_heads = audit_repository.all_checkpoints(session, AUDIT, tenant_id=tenant_id)
            AUDIT.verify(tenant_id, entries, signed_heads, KeySet([installation.keys.signing_key]))

        requests = list(session.scalars(sa.select(DeletionRequest)))
        assert {request.status for request in requests} <= {"completed"}
        where = {request.id: request.dataset_ids or [ANYWHERE] for request in requests}
        suppressed = session.execute(sa.select(Suppression.subject_ref, Suppression.dataset_id))
        assert {tuple(one) for one in suppressed} == {
            (request.subject_ref, one) for request in requests for one in where[request.id]
        }
        events = list(session.scalars(sa.select(RequestEvent)))
        for status in ("received", "completed"):
            seen = Counter(event.request_id for event in events if event.status == status)
            assert seen == {request.id: 1 for request in requests}
        erasures = list(session.scalars(sa.select(Erasure)))
        assert all(erasure.nulled_at and erasure.revision is not None for erasure in erasures)
        noted = Counter(event.request_id for event in events if event.kind == EventKind.ROWS_ERASED)
        assert noted == Counter(erasure.request_id for erasure in erasures)

        owed = list(session.scalars(sa.select(RequestModel)))
        signed = list(session.scalars(sa.select(Certificate)))
        assert {one.status for one in owed} <= {"completed"}
        assert Counter((c.request_id, c.model_id) for c in signed) == {(m.request_id, m.model_id): 1 for m in owed}
        assert {c.id for c in signed} == {m.certificate_id for m in owed}
        for certificate in signed:
            verification.verify(certificate.jws, certificates.public_keys(installation.keys))

        live = set()
        for model in session.scalars(sa.select(Model)):
            lines = session.execute(
                sa.select(Version, Run)
                .join(Run, Run.id == Version.run_id)
                .where(Version.model_id == model.id)
                .order_by(Version.number)
            ).all()
            versions = [version for version, _ in lines]
            assert [version.number for version in versions] == list(range(1, len(versions) + 1))
            assert [version.status for version in versions[:-1]] == ["destroyed"] * (len(versions) - 1)
            assert (versions[-1].status, versions[-1].number) == ("live", model.live_version)
            for (before, _), (_, run) in pairwise(lines):
                assert run.kind != "unlearn" or run.parent_version_id == before.id
            published = sa.select(sa.func.count()).where(Run.model_id == model.id, Run.status == "published")
            assert session.scalar(published) == len(versions)
            live.add(versions[-1].id)
            content = installation.weights.get(versions[-1].id)
            assert certificates.sha256(content) == versions[-1].weights_sha256
        assert installation.weights.version_ids() == live
        folders = (installation.settings.data_dir, installation.settings.store_folder())
        on_disk = {path for folder in folders for path in (folder / "weights").rglob("*") if path.is_file()}
        assert len(on_disk) == (1 if installation.settings.in_bucket else 2) * len(live)

        for dataset in session.scalars(sa.select(Dataset)):
            held = set(session.scalars(sa.select(Record.slot).where(Record.dataset_id == dataset.id)))
            claimed = sa.select(sa.func.count()).where(Record.erasure_id.is_not(None))
            assert session.scalar(claimed) == 0
            erased = [slot not in held for slot in range(dataset.num_slots)]
            rows = rows_of(installation, dataset.id)
            assert np.array_equal(~rows.features.any(axis=1), erased)
            assert not rows.labels[erased].any()
            assert dataset.damaged_at is None
            assert dataset.num_rows == len(held) == installation.rows.count(dataset.id, dataset.digest)
            assert is_settled(installation.rows, dataset.id, dataset.digest)
