"""Edits made before a run: added rows are written to their slots, and rows of people to be erased become null."""

from app import errors, installations, tracing
from app.rows.blocks import Filling
from app.unlearning import kinds, queue, service as unlearning
from lethe.contract.sets import RunKind
from worker import windows


def edited(installation: installations.Installation, run: queue.ClaimedRun) -> str:
    """Edit a run's rows and return the root of the result. Rows added for people to be erased become null.

    If an earlier run was cut off, its remains are destroyed first; a run that trains from scratch always searches for
    such remains. The blocks that this run reads are opened once, and if any of them or any block to be edited is
    damaged, no row is erased. The new root is recorded, then the keys of the replaced blocks are destroyed, and only
    then are people reported as erased.
    """
    # The lock waits for a worker that lost its run and may still be destroying rows.
    with installation.rows.alone(run.dataset_id):
        with installation.database.reading() as session:
            unlearning.check_held(session, run_id=run.run_id)
            was_cut_off = unlearning.was_any_run_cut_off(session, dataset_id=run.dataset_id)
        if was_cut_off or run.kind in (RunKind.LEARN, RunKind.RELEARN):
            installation.rows.settle(run.dataset_id, run.root)
    if not (run.additions or run.erases):
        return run.root
    with tracing.span("verify"):
        installation.rows.check(run.dataset_id, run.root, numbers=_read_by(run))
    with tracing.span("edit"):
        root = _edit(installation, run)
    with installation.database.writing() as session:
        unlearning.commit_rows(session, run_id=run.run_id, root=root, has_batches=bool(run.additions))
    with tracing.span("erase"):
        installation.rows.destroy_replaced(run.dataset_id, before=run.root, after=root)
        for addition in run.additions:
            installation.rows.delete(addition.addition_id)
    with installation.database.writing() as session:
        unlearning.confirm_edited(session, run_id=run.run_id, has_batches=bool(run.additions))
    return root


def _read_by(run: queue.ClaimedRun) -> tuple[range, ...]:
    """Return the blocks that a run's steps read."""
    if run.mechanism is None or run.kind in kinds.asked_kinds():
        return ()
    return windows.read_by(run.mechanism, first_step=run.first_step, steps=run.steps)


def _edit(installation: installations.Installation, run: queue.ClaimedRun) -> str:
    """Write added rows to their slots, null the slots to be erased, and return the root. Raises `RunDiffersFromPlan` if
    the slots to be erased are not null when read back."""
    fillings = [
        Filling(rows_id=rows.addition_id, root=rows.root, slots=rows.slots) for rows in run.additions if rows.slots
    ]
    root = installation.rows.edit(run.dataset_id, run.root, fill=fillings, null=run.slots_to_null)
    for block in installation.rows.read(run.dataset_id, root, holding=run.slots_to_null):
        if not block.is_null(run.slots_to_null):
            raise errors.RunDiffersFromPlan(f"Run {run.run_id} erased other rows than it was to.")
    return root
