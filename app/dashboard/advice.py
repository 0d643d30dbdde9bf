"""Advice on a run that failed: what that means, and what to do about it, as docs/operations.md says it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """About one `error_code`. `means`: what happened; `todo`: what an operator does."""

    means: str
    todo: str


_WORKER_GONE = Advice(
    means="The worker was killed, or silent for longer than its lease.",
    todo="Nothing, if it happens once: another run does the work again. Otherwise read the end of the worker's log.",
)
_DISK_OR_DATABASE = Advice(
    means="Usually a full disk, or the database.",
    todo="Look at the free space of the data folder, and whether the database answers.",
)
_NO_ACCESS = Advice(
    means="A file or folder is not there, or may not be used: often that of the tombstones.",
    todo="See that the folder of LETHE_TOMBSTONES exists, and that workers can write there.",
)
_WEIGHTS_LOST = Advice(means="The live weights are lost or damaged.", todo="Nothing: the model is learned again.")
_UNKNOWN = Advice(means="A defect.", todo="Report it, with the log line unlearning.run_failed and its places.")

_ADVICE: Mapping[str, Advice] = {
    "worker_died": _WORKER_GONE,
    "lease_expired": _WORKER_GONE,
    "run_process_died": Advice(
        means="The process that computes was killed: nearly always for want of memory.",
        todo="Give the worker more memory; the kernel's log says oom.",
    ),
    "restored": Advice(
        means="It was under way when the installation was restored from a backup.",
        todo="Nothing: what is owed runs again.",
    ),
    "dataset_damaged": Advice(
        means="The rows that are stored are not those on record. No run touches the dataset any more.",
        todo="Put the right file back and run lethe dataset recheck, or restore a backup with the tombstones.",
    ),
    "database_put_back": Advice(
        means="The tombstones know requests that the database does not: an older state of it was put back.",
        todo="Back it up as it is with lethe backup, and restore that with the tombstones.",
    ),
    "tombstones_damaged": Advice(
        means="The tombstones were changed, have lost lines, or are another installation's. Nobody is erased.",
        todo="Put back a copy of them that is whole.",
    ),
    "dataset_too_large": Advice(
        means="The rows that one step reads do not fit in the memory that a run may use. They are erased nevertheless; "
        "nothing is learned.",
        todo="Set LETHE_ROWS_MEMORY_BYTES to more, on a machine that has it, or make the model with a smaller batch "
        "size.",
    ),
    "second_moment_exceeded": Advice(
        means="The rows of a batch exceed the second moment that the model's mechanism states. Nothing was learned.",
        todo="Make the model with a larger second moment, or with none.",
    ),
    "FileNotFoundError": _NO_ACCESS,
    "PermissionError": _NO_ACCESS,
    "run_differs_from_plan": Advice(
        means="What ran is not what was planned. Nothing was certified or published.",
        todo="Compare the versions of gateway and worker; report it.",
    ),
    "audit_failed": Advice(
        means="The canary test of the run refuted what it was to certify. Nothing was certified or published.",
        todo="The page of the run says by what. It runs again; if that fails too, run nothing on that machine.",
    ),
    "adaptive_budget_spent": Advice(
        means="The dataset's budget has no room for another version. Rows are erased; requests wait for the model.",
        todo="Retire the model to complete them. A model for the future learns from a new dataset.",
    ),
    "weights_unreadable": _WEIGHTS_LOST,
    "weights_destroyed": _WEIGHTS_LOST,
    "KeyEncryptionKeyLost": Advice(
        means="The key-encryption key is not there, or is another one: nothing sealed can be opened.",
        todo="Put keys/kek back from a backup.",
    ),
    "OSError": _DISK_OR_DATABASE,
    "OperationalError": _DISK_OR_DATABASE,
    "FloatingPointError": Advice(
        means="A number was not finite. Nothing was published, nothing is certified.",
        todo="Change the settings of the model: a larger l2 or noise_scale.",
    ),
}


def advice(error_code: str) -> Advice:
    return _ADVICE.get(error_code, _UNKNOWN)
