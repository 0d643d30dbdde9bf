"""Edit before a run: added rows are written to their slots, and rows of people to be erased become null."""

from app import tracing
from app.errors import RunDiffersFromPlan
from app.installations import Installation
from app.rows.blocks import Filling
from app.unlearning import kinds
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from lethe.contract.sets import RunKind
from worker import windows


def edited(installation: Installation, claimed: ClaimedRun) -> str:
    """Edit the rows of a run and return the root of the result. Rows added for people to be erased end as null.

    If an earlier run was cut off, its remains are destroyed first; before a run that learns from scratch they are
    sought in any case. The blocks that this run reads are opened once, and if one of them or of those to be edited is
    damaged, no row is erased. The new root is recorded, then the keys of the replaced blocks are destroyed, and only
    then are people reported as erased.
    """
    # The lock waits for a worker that lost its run and may still be destroying rows.
    with installation.rows.alone(claimed.dataset_id):
        with installation.database.reading() as session:
            unlearning.check_held(session, run_id=claimed.run_id)
            was_cut_off = unlearning.was_any_run_cut_off(session, dataset_id=claimed.dataset_id)
        if was_cut_off or claimed.kind in (RunKind.LEARN, RunKind.RELEARN):
            installation.rows.settle(claimed.dataset_id, claimed.root)
    if not (claimed.additions or claimed.erases):
        return claimed.root
    with tracing.span("verify"):
        installation.rows.check(claimed.dataset_id, claimed.root, numbers=_read_by(claimed))
    with tracing.span("edit"):
        root = _edit(installation, claimed)
    with installation.database.writing() as session:
        unlearning.commit_rows(session, run_id=claimed.run_id, root=root)
    with tracing.span("erase"):
        installation.rows.destroy_replaced(claimed.dataset_id, before=claimed.root, after=root)
        for addition in claimed.additions:
            installation.rows.delete(addition.addition_id)
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=claimed.run_id)
    return root


def _read_by(claimed: ClaimedRun) -> tuple[range, ...]:
    """Return the blocks that the steps of a run read."""
    if claimed.mechanism is None or claimed.kind in kinds.asked_kinds():
        return ()
    return windows.read_by(claimed.mechanism, first_step=claimed.first_step, steps=claimed.steps)


def _edit(installation: Installation, claimed: ClaimedRun) -> str:
    """Write additions to their slots, null the slots to erase, and return the root. Raises `RunDiffersFromPlan` if the
    slots to erase are not null when read back."""
    fillings = [
        Filling(rows_id=rows.addition_id, root=rows.root, slots=rows.slots) for rows in claimed.additions if rows.slots
    ]
    root = installation.rows.edit(claimed.dataset_id, claimed.root, fill=fillings, null=claimed.slots_to_null)
    for block in installation.rows.read(claimed.dataset_id, root, holding=claimed.slots_to_null):
        if not block.is_null(claimed.slots_to_null):
            raise RunDiffersFromPlan(f"Run {claimed.run_id} erased other rows than it was to.")
    return root
