"""Calls that the present state does not allow."""

from lethe.contract.problems.families import Conflict


class TangentServedElsewhere(Conflict):
    code = "tangent_served_elsewhere"
    title = "The gateway does not run the network of this model"


class IdempotencyConflict(Conflict):
    code = "idempotency_conflict"
    title = "The idempotency key was used with another body"


class TenantExists(Conflict):
    code = "tenant_exists"
    title = "There is a tenant of this name"


class SubjectRuleFixed(Conflict):
    code = "subject_rule_fixed"
    title = "The rule for subject ids cannot be changed any more"


class LastAdminKey(Conflict):
    code = "last_admin_key"
    title = "Without this key nobody would be left to administer the tenant"


class TransitionForbidden(Conflict):
    code = "transition_forbidden"
    title = "The request can no longer change that way"


class RequestOpen(Conflict):
    code = "request_open"
    title = "The request referred to has not ended"


class AlreadyExtended(Conflict):
    code = "already_extended"
    title = "The deadline has been extended before"


class ExtensionTooLate(Conflict):
    code = "extension_too_late"
    title = "The deadline has passed"


class ExtensionNotProvided(Conflict):
    code = "extension_not_provided"
    title = "The regulation provides for no extension"


class ClockRunsOn(Conflict):
    code = "clock_runs_on"
    title = "The clock does not stand still under this regulation"


class DetailsErased(Conflict):
    code = "details_erased"
    title = "Details of the request are kept no longer"


class NotesFull(Conflict):
    code = "notes_full"
    title = "The request has as many notes as it may"


class AttachmentsFull(Conflict):
    code = "attachments_full"
    title = "The request has as many attachments as it may"


class ReplyUnprintable(Conflict):
    code = "reply_unprintable"
    title = "The PDF of the reply would lack characters"


class NotAssignable(Conflict):
    code = "not_assignable"
    title = "Requests cannot be assigned to this person"


class SubjectSuppressed(Conflict):
    code = "subject_suppressed"
    title = "Somebody in the upload asked to be forgotten"


class DatasetBusy(Conflict):
    code = "dataset_busy"
    title = "A run is at work on the dataset"


class EvaluationOverlaps(Conflict):
    code = "evaluation_overlaps"
    title = "Somebody is both learned from and measured on"


class DatasetFull(Conflict):
    code = "dataset_full"
    title = "The dataset has too few free slots"


class SecretNotPresent(Conflict):
    code = "secret_not_present"
    title = "The webhook secret named is not the present one"


class NetworkExists(Conflict):
    code = "network_exists"
    title = "This network is there"


class NetworkInUse(Conflict):
    code = "network_in_use"
    title = "A dataset or a model stands on this network"


class IssuerExists(Conflict):
    code = "issuer_exists"
    title = "This issuer is registered"


class ModelNotLive(Conflict):
    code = "model_not_live"
    title = "The model has no live version yet"


class ModelHeld(Conflict):
    code = "model_held"
    title = "The live version is held back from serving"


class ModelInUse(Conflict):
    code = "model_in_use"
    title = "The model is still needed"


class DatasetInUse(Conflict):
    code = "dataset_in_use"
    title = "The dataset is still needed"


class ModelRetired(Conflict):
    code = "model_retired"
    title = "The model was retired"


class AdaptiveBudgetSpent(Conflict):
    code = "adaptive_budget_spent"
    title = "The dataset's budget has no room for another version"


class DatasetRetired(Conflict):
    code = "dataset_retired"
    title = "The dataset was retired"


class RunNotCancellable(Conflict):
    code = "run_not_cancellable"
    title = "The run cannot be cancelled"


class AgentExists(Conflict):
    code = "agent_exists"
    title = "There is an agent with this id"


class SavedViewExists(Conflict):
    code = "saved_view_exists"
    title = "There is a saved view of this name"


class SavedViewsFull(Conflict):
    code = "saved_views_full"
    title = "There are as many saved views as there may be"


class RehearsalPending(Conflict):
    code = "rehearsal_pending"
    title = "A rehearsal of the model has not ended yet"


class RehearsalDone(Conflict):
    code = "rehearsal_done"
    title = "The live version has been rehearsed"


class RehearsalTooLarge(Conflict):
    code = "rehearsal_too_large"
    title = "The rehearsal would forget more people than the dataset can spare"


class UserExists(Conflict):
    code = "user_exists"
    title = "There is a person with this e-mail address"


class LastAdministrator(Conflict):
    code = "last_administrator"
    title = "Without this person nobody would be left to administer the tenant"
