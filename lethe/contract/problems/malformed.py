"""Input that is malformed, or that nothing can be made of."""

from lethe.contract.problems.families import Malformed, Refused


class InputInvalid(Malformed):
    code = "input_invalid"
    title = "The input is malformed"


class BatchRefused(InputInvalid):
    code = "batch_refused"
    title = "None of the requests was accepted"


class SchemaInvalid(InputInvalid):
    code = "schema_invalid"
    title = "The dataset schema is malformed"


class RowInvalid(InputInvalid):
    code = "row_invalid"
    title = "A row of the upload cannot be encoded"


class NetworkInvalid(InputInvalid):
    code = "network_invalid"
    title = "The file is no network that is taken"


class NetworkFailed(InputInvalid):
    code = "network_failed"
    title = "A network took more memory or time than it may"


class MessageEarly(InputInvalid):
    code = "message_early"
    title = "The signed message is not valid yet"


class MessageExpired(InputInvalid):
    code = "message_expired"
    title = "The signed message is not valid any more"


class DatasetUnusable(InputInvalid):
    code = "dataset_unusable"
    title = "No model can be learned from these rows"


class UploadTooLarge(Malformed):
    code = "upload_too_large"
    title = "The upload is larger than this server accepts"
    status = 413


class AttachmentInvalid(Malformed):
    code = "attachment_invalid"
    title = "The file is of no kind that is kept"


class HeadersTooLarge(Malformed):
    code = "headers_too_large"
    title = "The head of the request is larger than this server accepts"
    status = 431


class RequestTimedOut(Refused):
    code = "request_timed_out"
    title = "The request did not come in time"
    status = 408


class PreconditionFailed(InputInvalid):
    code = "precondition_failed"
    title = "A precondition of the guarantee does not hold"


class WorkExceeded(InputInvalid):
    code = "work_exceeded"
    title = "The evaluation would take more work than this service gives it"


class IdentityStatementRequired(InputInvalid):
    code = "identity_statement_required"
    title = "A signed statement about the subject's identity is needed"


class TargetUnreachable(InputInvalid):
    code = "target_unreachable"
    title = "The target cannot be reached with these settings"


class TargetTooWeak(InputInvalid):
    code = "target_too_weak"
    title = "The target is weaker than the tenant's policy allows"
