"""Errors inside the server. The errors that callers receive are defined in the contract."""

from typing import TYPE_CHECKING

from lethe.contract.problems import Problem

if TYPE_CHECKING:
    from lethe.proof.canary_test import Observed

# --- refusals of the engine and the accountant -----------------------------------------------------------------------


class LeaseLost(Problem, title="Another worker has taken this run"): ...


class RunDiffersFromPlan(Problem, title="The run differs from its plan; nothing is certified"): ...


class RunKindUnsupported(Problem, title="This worker has no handler for a kind of run"): ...


class AuditFailed(Problem, title="The canary test of a run refuted its certificate; nothing is published"):
    def __init__(self, message: str, *, observed: "Observed | None" = None) -> None:
        """Create the error with the statistics of the run's canary test, if they were observed."""
        super().__init__(message)
        self.observed = observed


class NotConverged(Problem, title="The solver of a run did not reach its tolerance; nothing is published"): ...


class DatasetTooLarge(Problem, title="The rows of a dataset do not fit in the memory that a run may use"): ...


class SecondMomentExceeded(Problem, title="The rows of a batch exceed the second moment that the mechanism states"): ...


class AuditCorrupt(Problem, title="The audit log does not verify"): ...


class MechanismUnreadable(Problem, title="A stored mechanism is not in this release's format"): ...


class MethodUnsupported(Problem, title="The method of a model is not installed"): ...


class WeightsUnreadable(Problem, title="The sealed weights cannot be opened"): ...


class SignatureUnverifiable(Problem, title="A signature does not verify; the signed content is not used"): ...


# --- starting the service --------------------------------------------------------------------------------------------


class AlreadyRunning(Problem, title="The data folder is in use"): ...


class DatabaseUnreadable(Problem, title="The database cannot be read"): ...


class FolderExposed(Problem, title="Others can enter a folder of the installation"): ...


class SigningUnusable(Problem, title="The certificate for signing answers cannot be used"): ...


class AddressInUse(Problem, title="The server cannot listen on the address"): ...


# --- backups ---------------------------------------------------------------------------------------------------------


class BackupRefused(Problem, title="The backup cannot be made or restored this way"): ...


class BackupDamaged(Problem, title="The archive does not hold a whole backup of this release"): ...


class TombstonesDamaged(Problem, title="The tombstones are not as they were written"): ...


class TombstonesStale(Problem, title="The tombstones are older than the backup"): ...


class RestoreUnfinished(Problem, title="A restore was not finished"): ...
