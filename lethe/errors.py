"""Errors of a call: those that the gateway answers with, and those of the connection to it.

Each family calls for a different reaction: `Refused` (`NotAllowed`, `NotFound`, `Conflict`, `Gone`, `Malformed`) is
refused again if repeated, while `Unavailable` and `Unreachable` may be retried later. Each error code of the gateway
has a class below them (`lethe.contract.problems`).
"""

from lethe.contract.problems import (
    CertificateBeyondLimits,
    CertificateInvalid,
    Conflict,
    FieldError,
    Gone,
    InputInvalid,
    Malformed,
    NotAllowed,
    NotFound,
    Problem,
    Refused,
    Unauthenticated,
    Unavailable,
)

__all__ = [
    "AnswerInvalid",
    "CertificateBeyondLimits",
    "CertificateInvalid",
    "Conflict",
    "FieldError",
    "Gone",
    "InputInvalid",
    "Malformed",
    "NotAllowed",
    "NotExpressible",
    "NotFound",
    "Problem",
    "Refused",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "WaitTimedOut",
]


class Unreachable(Problem, title="Nothing answers there"):
    """The gateway did not answer. A call that changes something may have taken effect nevertheless."""

    status = None


class AnswerInvalid(Problem, title="The answer cannot be read"):
    """The server that answered is not Lethe, or not a version of it that this package understands."""

    status = None


class WaitTimedOut(Problem, TimeoutError, title="Still not done"):
    """An operation did not finish within the time limit; it continues."""

    status = None


class NotExpressible(Problem, title="The model cannot be written as ONNX"):
    """The model, or the encoding of its rows, cannot be written as ONNX; `errors` names the columns. No file was
    returned."""

    status = None
