"""Named conditions inside the server; those that callers are answered with are `lethe.contract.problems`."""

from lethe.contract.problems import Problem

# --- refusals of the engine and the accountant -----------------------------------------------------------------------


class LeaseLost(Problem):
    code = "lease_lost"
    title = "Another worker has taken this run"


class RunDiffersFromPlan(Problem):
    code = "run_differs_from_plan"
    title = "What ran is not what was planned; nothing is certified"


class AuditFailed(Problem):
    code = "audit_failed"
    title = "The audit of a run refuted what it was to certify; nothing is published"


class DatasetTooLarge(Problem):
    code = "dataset_too_large"
    title = "The rows of a dataset do not fit in the memory that a run may use"


class SecondMomentExceeded(Problem):
    code = "second_moment_exceeded"
    title = "The rows of a batch exceed the second moment that the mechanism states"


class AuditCorrupt(Problem):
    code = "audit_corrupt"
    title = "The audit log does not verify"


class MechanismUnreadable(Problem):
    code = "mechanism_unreadable"
    title = "A stored mechanism is not of this release's format"


class WeightsUnreadable(Problem):
    code = "weights_unreadable"
    title = "The sealed weights cannot be opened"


class SignatureUnverifiable(Problem):
    code = "signature_unverifiable"
    title = "What was signed does not verify; it is not used"


# --- starting the service --------------------------------------------------------------------------------------------


class AlreadyRunning(Problem):
    code = "already_running"
    title = "The data folder is in use"


class DatabaseUnreadable(Problem):
    code = "database_unreadable"
    title = "The database cannot be read"


class FolderExposed(Problem):
    code = "folder_exposed"
    title = "Others can enter a folder of the installation"


class SigningUnusable(Problem):
    code = "signing_unusable"
    title = "The certificate for signing answers cannot be used"


class AddressInUse(Problem):
    code = "address_in_use"
    title = "The address cannot be listened on"


# --- backups ---------------------------------------------------------------------------------------------------------


class BackupRefused(Problem):
    code = "backup_refused"
    title = "The backup cannot be made or restored so"


class BackupDamaged(Problem):
    code = "backup_damaged"
    title = "The archive is not what was written"


class TombstonesDamaged(Problem):
    code = "tombstones_damaged"
    title = "The tombstones are not those that were written"


class TombstonesStale(Problem):
    code = "tombstones_stale"
    title = "The tombstones are older than the backup"


class DatabasePutBack(Problem):
    code = "database_put_back"
    title = "The database is older than the tombstones"


class RestoreUnfinished(Problem):
    code = "restore_unfinished"
    title = "A restore was not finished"
