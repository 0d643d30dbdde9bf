"""Restore a backup into an empty installation, and forget everybody who has asked to be forgotten since, before it may
be served.

People who asked since the backup are looked up in the tombstones: their requests are open again, their rows are claimed
at once, and what is written to disk is already null where their rows were. All weights are lost: models learn again.
While that lasts, and after it was cut off, a file in the data folder lets nobody serve; it can be run again from the
start.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy.orm import Session

from app import installations, key_checks
from app.accounting import ledger
from app.audit import checkpoints
from app.audit import repository as audit_repository
from app.audit import service as audit
from app.audit.chains import AUDIT, CHAINS, LEDGER, StoredChain
from app.backup import coverage, destination, dump, repository, tombstones
from app.backup.archive import Piece, Reader
from app.backup.contents import About, Pieces, about_of, last_name
from app.backup.journal import Journal, Signed
from app.backup.service import ABOUT, KEYS, MANIFEST, ROWS, TABLES, VAULT, Progress
from app.catalogue import additions
from app.config import Settings
from app.db import bulk, migrate, now
from app.deletion import claims, restoration
from app.deletion import repository as deletion_repository
from app.deletion.restoration import Again, Remembered
from app.errors import BackupDamaged, BackupRefused
from app.installations import Installation
from app.key_checks import Identity
from app.keys import KeyEncryptionFile, SubjectKey
from app.rows import repository as rows_repository
from app.rows.blocks import mapped
from app.rows.manifest import BLOCK_ROWS, Shape
from app.unlearning import retirement
from app.unlearning import service as unlearning
from app.vault.files import sync_folder

_ALL = 2**31 - 1
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of a restore: how many requests were made again, how many brought to where they stood; the models that
    are to learn again. `people`: number of those who can log in, by role. `remembered`: there were tombstones."""

    about: About
    requests: Again
    num_models: int
    num_datasets: int
    people: dict[str, int]
    remembered: bool


def restore(
    settings: Settings,
    path: Path,
    *,
    key_file: Path,
    remembered_in: Path | None,
    lost_versions: int = 0,
    progress: Progress,
) -> Restored:
    """Restore the archive at `path`. `remembered_in`: the tombstones; None for an operator who has none, and knows what
    that means. `lost_versions`: how many versions of any model they do not tell of, at most.

    Raises `BackupRefused`, `TombstonesDamaged` and `TombstonesStale` before anything is changed, and `BackupDamaged`;
    what was done until then lets nobody serve.
    """
    if not key_file.exists():
        raise BackupRefused(f"There is no key file {key_file}: without it nobody can open the backup.")
    with path.open("rb") as file:
        reader = Reader(file, KeyEncryptionFile(key_file))
        pieces = Pieces(reader)
        about = about_of(pieces.one(ABOUT))
        destination.check(settings, remembered_in)
        keys = list(pieces.of(KEYS))
        journal = _journal(remembered_in, keys, about)
        destination.claim(settings)
        for piece in keys:
            destination.write_key(settings.data_dir / "keys", piece)
        installations.set_up_stores(settings)
        with installations.opened(settings, unfinished=True) as installation:
            migrate.upgrade(installation.database.engine)
            for piece in pieces.of(VAULT):
                installation.vault.put_page(last_name(piece), piece.content)
            _load(installation, pieces, progress=progress)
            known = _check_keys(installation)
            requests, num_models = _forget(installation, journal, lost_versions=lost_versions)
            num_datasets = _write_rows(installation, pieces, progress=progress)
            with installation.database.reading() as session:
                people = repository.people_by_role(session)
            found = reader.tallies()
            if json.loads(pieces.one(MANIFEST).content) != found:
                raise BackupDamaged("The archive lacks something that was written into it.")
            restored = Restored(
                about=about,
                requests=requests,
                num_models=num_models,
                num_datasets=num_datasets,
                people=people,
                remembered=journal is not None,
            )
            for place in installations.places(settings):
                place.mark(known.id)
            _finish(installation, restored, journal)
    return restored


def _journal(remembered_in: Path | None, keys: list[Piece], about: About) -> Journal | None:
    """The tombstones, whole, reaching back to the backup, and at least as new as it. Nothing of it is on disk yet."""
    if remembered_in is None:
        return None
    texts = [piece.content.decode().strip() for piece in keys if piece.thing == f"{KEYS}/subject.key"]
    if len(texts) != 1:
        raise BackupDamaged("The archive does not hold what a backup holds.")
    journal = Journal(remembered_in, SubjectKey(text=texts[0]))
    coverage.require(journal, about.tombstones, made_at=about.created_at)
    for line in journal.lines():
        if line.kind == "dropped" and line.at > about.created_at:
            raise BackupRefused(
                f"The tombstones remember nothing before {line.at:%F %T}; the backup is older than that."
            )
    return journal


def _remembered(session: Session, journal: Journal) -> list[Remembered]:
    """All requests that the database does not know or that are open in it, as they stood at last.

    Whenever that was: the database in the archive may have been put back itself before the backup was made.
    """
    found: dict[str, Remembered] = {}
    requests = (line.request for line in journal.lines() if line.request is not None)
    while some := list(itertools.islice(requests, _AT_ONCE)):
        ended = repository.ended_requests(session, {one.id for one in some})
        found |= {one.id: one for one in some if one.id not in ended}
    return list(found.values())


def _load(installation: Installation, pieces: Pieces, *, progress: Progress) -> None:
    with installation.database.writing() as session:
        tables = itertools.groupby(pieces.of(TABLES), key=last_name)
        for number, (name, of_table) in enumerate(tables):
            progress("tables", number, len(dump.TABLES))
            for piece in of_table:
                dump.load(session, dump.TABLES[name], piece.content)
        bulk.count_on(session)


def _check_keys(installation: Installation) -> Identity:
    """Require that the keys in the archive are those of its database, and that the place of rows and weights is nobody
    else's; the key-encryption key is a new one."""
    known = key_checks.of_database(installation.database)
    if known is None or key_checks.wrong_key(installation.keys, known):
        raise BackupDamaged("The keys in the archive are not those of its database.")
    for place in installations.places(installation.settings):
        if place.owner() not in (None, known.id):
            raise BackupRefused(f"{place.name} belongs to another installation than the backup.")
    key_checks.accept(
        installation.database, installations.key_encryption_of(installation.settings).check_values(known.id)
    )
    return known


def _forget(installation: Installation, journal: Journal | None, *, lost_versions: int) -> tuple[Again, int]:
    """Void what was running and all weights, bring requests to where they stood, and claim the rows of everybody who
    is to be forgotten by now: no run begins before they are null. What was published since the backup is counted."""
    with installation.database.writing() as session:
        told = (line.release for line in journal.lines() if line.release) if journal else ()
        for release in {release.version_id: release for release in told}.values():  # most of them stand in two lines
            repository.add_lost(session, **dataclasses.asdict(release))
        repository.add_lost_to_all(session, steps=installation.settings.max_steps, count=lost_versions)
        unlearning.take_back_all(session)
        num_models = repository.lose_weights(session, at=now(session))
        repository.end_sessions(session)
        repository.void_invitations(session)
        requests = restoration.catch_up(session, _remembered(session, journal) if journal else [])
        for dataset in repository.datasets(session):
            if deletion_repository.pending_erasures(session, dataset_id=dataset.id, limit=1):
                additions.take(session, dataset=dataset)
                claims.claim_erasures(session, dataset=dataset, limit=_ALL)
        for retired_id in (line.retired for line in journal.lines() if line.retired) if journal else ():
            retirement.retire_again(session, retired_id)
    return requests, num_models


def _write_rows(installation: Installation, pieces: Pieces, *, progress: Progress) -> int:
    """Null where somebody's rows are claimed: they are not written to disk again."""
    with installation.database.reading() as session:
        stored = rows_repository.row_roots(session)
        retired = repository.rows_of_retired(session)
    total = len(stored)
    for number, (rows_id, of_it) in enumerate(itertools.groupby(pieces.of(ROWS), key=last_name)):
        progress("rows", number, total)
        if stored.pop(rows_id, None) is None:
            if rows_id in retired:
                continue
            raise BackupDamaged("The archive holds rows of which its tables do not tell.")
        with installation.database.reading() as session:
            claimed = repository.claimed_positions(session, rows_id)
        root = _write(installation, rows_id, of_it, np.array(claimed, dtype=np.int64))
        with installation.database.writing() as session:
            rows_repository.set_root(session, rows_id, root)
    if stored:
        raise BackupDamaged("The archive lacks rows of which its tables tell.")
    return total


def _write(installation: Installation, rows_id: str, of_it: Iterator[Piece], claimed: npt.NDArray[np.int64]) -> str:
    """The root of what was written."""
    try:
        shape = Shape(**json.loads(next(of_it).content))
    except (TypeError, ValueError) as error:
        raise BackupDamaged("The archive does not state the shape of rows as this release does.") from error
    installation.rows.delete(rows_id)  # what an earlier try left
    with installation.rows.writing(rows_id, shape.num_columns) as writer:
        for block, piece in enumerate(of_it):
            num_rows = shape.rows_in(block)
            if len(piece.content) != num_rows * shape.row_bytes:
                raise BackupDamaged("The archive holds rows that are not of the shape that it states.")
            found = mapped(piece.content, num_rows, shape.num_columns, shape.has_weights)
            features, labels = found[0].copy(), found[1].copy()
            here = claimed[claimed // BLOCK_ROWS == block] % BLOCK_ROWS
            features[here], labels[here] = 0, 0
            writer.write(features, labels)
        if writer.num_slots != shape.num_slots:
            raise BackupDamaged("The archive holds fewer rows than it states.")
    return writer.root


def _finish(installation: Installation, restored: Restored, journal: Journal | None) -> None:
    """Say so in every tenant's chains, sign them, go on with the tombstones, and let everybody serve."""
    kept = {(head.tenant_id, head.log): head for head in journal.heads()} if journal else {}
    with installation.database.writing() as session:
        last = audit_repository.last_checkpoint(session)
        signed = last.number if last else 0
        for tenant_id in repository.tenant_ids(session):
            _say(
                session,
                installation,
                restored,
                tenant_id,
                {chain.name: kept.get((tenant_id, chain.name)) for chain in CHAINS},
            )
    if journal is not None:
        destination.bring(journal.path, installation.settings.resolved_tombstones())
        tombstones.record_restored(installation, signed=signed)
        tombstones.record(installation)
    installations.unfinished(installation.settings).unlink()
    sync_folder(installation.settings.data_dir)


def _say(
    session: Session, installation: Installation, restored: Restored, tenant_id: str, kept: dict[str, Signed | None]
) -> None:
    """An entry in the tenant's audit log, and a link in its ledger, each with the head that was signed about it and
    that it does not reach any more: what was between is lost, and somebody who kept that head can tell why."""
    lost = {chain.name: _lost(session, chain, kept[chain.name]) for chain in CHAINS}
    about = restored.about
    detail: dict[str, Any] = {
        "backed_up_at": about.created_at.isoformat(),
        "tombstones": restored.remembered,
        "requests_made_again": restored.requests.made,
        "requests_changed": restored.requests.changed,
        "models_to_learn_again": restored.num_models,
        "lost_head": lost[AUDIT.name],
        "lost_ledger_head": lost[LEDGER.name],
    }
    deed = audit.Deed(
        tenant_id=tenant_id, actor=audit.SERVICE, action="installation.restored", object_id=about.id, detail=detail
    )
    audit.record_all(session, [deed])
    if lost[LEDGER.name] or audit_repository.last_row(session, LEDGER, tenant_id=tenant_id):
        ledger.link(
            session,
            tenant_id=tenant_id,
            kind="restored",
            backup_id=about.id,
            backed_up_at=about.created_at.isoformat(),
            restored_at=now(session).isoformat(),
            lost=lost[LEDGER.name],
        )
    for chain in CHAINS:
        checkpoints.checkpoint_now(session, installation.keys, chain, tenant_id=tenant_id)


def _lost(session: Session, chain: StoredChain, head: Signed | None) -> dict[str, Any] | None:
    """The head, if the chain does not have it."""
    if head is None:
        return None
    there = audit_repository.row(session, chain, tenant_id=head.tenant_id, sequence=head.sequence)
    return None if there is not None and there.hash == head.hash else {"sequence": head.sequence, "hash": head.hash}
