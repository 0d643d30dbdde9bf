"""Everything that can go wrong with a call: the gateway's own conditions, and those of the way there and back.

A family for each thing to do about it: `Refused` (`NotAllowed`, `NotFound`, `Conflict`, `Gone`, `Malformed`) will be
refused again, `Unavailable` and `Unreachable` may be tried later. Below them is a class for each code that the gateway
answers with (`lethe.contract.problems`).
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


class Unreachable(Problem):
    """Nothing answered. A call that changes something may have been made nevertheless."""

    code = "unreachable"
    title = "Nothing answers there"
    status = None


class AnswerInvalid(Problem):
    """The server that answered is not Lethe, or not a version of it that this package understands."""

    code = "answer_invalid"
    title = "The answer cannot be read"
    status = None


class WaitTimedOut(Problem, TimeoutError):
    """It had not happened in time; it goes on."""

    code = "wait_timed_out"
    title = "Still not done"
    status = None


class NotExpressible(Problem):
    """The model, or the encoding of its rows, cannot be written as ONNX: `errors` names the columns. Nothing was handed
    out."""

    code = "not_expressible"
    title = "The model cannot be written as ONNX"
    status = None
