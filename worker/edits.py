"""The edit before a run: rows that came are filled in, rows of people who asked to be forgotten become null."""

from app import tracing
from app.errors import RunDiffersFromPlan
from app.installations import Installation
from app.rows.blocks import Filling
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from lethe.contract.sets import RunKind
from worker import windows


def edited(installation: Installation, claimed: ClaimedRun) -> str:
    """The root of the rows that this run goes on with. People who came and have asked to be forgotten since end null.

    First, where a run before this one was cut off, what it left is destroyed; before rows are learned it is looked for
    in any case. What this run reads is opened once: where that is damaged, or what is to be edited, nothing is erased
    either. The new root is put on record, the keys of what it replaces are destroyed, and only then is anybody said to
    be erased.
    """
    with installation.rows.alone(claimed.dataset_id):  # a worker that lost its run has destroyed what it was about to
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
    """The blocks that the steps of a run read."""
    if claimed.mechanism is None or claimed.kind in (RunKind.AUDIT, RunKind.REHEARSAL):
        return ()
    return windows.read_by(claimed.mechanism, first_step=claimed.first_step, steps=claimed.steps)


def _edit(installation: Installation, claimed: ClaimedRun) -> str:
    """A root under which the rows that came are in their slots, and those of people who are to be erased are null;
    looked at once more, for that. Raises `RunDiffersFromPlan`."""
    fillings = [
        Filling(rows_id=one.addition_id, root=one.root, slots=one.slots) for one in claimed.additions if one.slots
    ]
    root = installation.rows.edit(claimed.dataset_id, claimed.root, fill=fillings, null=claimed.slots_to_null)
    for block in installation.rows.read(claimed.dataset_id, root, holding=claimed.slots_to_null):
        if not block.is_null(claimed.slots_to_null):
            raise RunDiffersFromPlan(f"Run {claimed.run_id} erased other rows than it was to.")
    return root
