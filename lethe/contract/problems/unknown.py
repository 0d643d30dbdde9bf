"""Things that are not there, or not there any more."""

from lethe.contract.problems.families import Gone, NotFound


class KeyUnknown(NotFound):
    code = "key_unknown"
    title = "There is no such API key"


class AgentUnknown(NotFound):
    code = "agent_unknown"
    title = "There is no such agent"


class TenantUnknown(NotFound):
    code = "tenant_unknown"
    title = "There is no such tenant"


class BoundUnknown(NotFound):
    code = "bound_unknown"
    title = "There is no such bound in the calculator"


class DatasetUnknown(NotFound):
    code = "dataset_unknown"
    title = "There is no such dataset"


class AdditionUnknown(NotFound):
    code = "addition_unknown"
    title = "There is no such addition"


class AttachmentUnknown(NotFound):
    code = "attachment_unknown"
    title = "The request has no such attachment"


class SubjectUnknown(NotFound):
    code = "subject_unknown"
    title = "Nothing is held about this subject"


class ModelUnknown(NotFound):
    code = "model_unknown"
    title = "There is no such model"


class VersionUnknown(NotFound):
    code = "version_unknown"
    title = "There is no such model version"


class RequestUnknown(NotFound):
    code = "request_unknown"
    title = "There is no such deletion request"


class DeliveryUnknown(NotFound):
    code = "delivery_unknown"
    title = "There is no such delivery to a receiver"


class NetworkUnknown(NotFound):
    code = "network_unknown"
    title = "There is no such network"


class IssuerUnknown(NotFound):
    code = "issuer_unknown"
    title = "There is no such issuer"


class RunUnknown(NotFound):
    code = "run_unknown"
    title = "There is no such run"


class CertificateUnknown(NotFound):
    code = "certificate_unknown"
    title = "There is no such certificate"


class WeightsDestroyed(Gone):
    code = "weights_destroyed"
    title = "The weights of this version were destroyed"


class RehearsalUnknown(NotFound):
    code = "rehearsal_unknown"
    title = "There is no such rehearsal"


class SavedViewUnknown(NotFound):
    code = "saved_view_unknown"
    title = "There is no such saved view"


class UserUnknown(NotFound):
    code = "user_unknown"
    title = "There is no such person"


class InvitationOver(Gone):
    code = "invitation_over"
    title = "The invitation has been used, or has expired"
