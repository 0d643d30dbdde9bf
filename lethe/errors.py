"""Errors raised by calls: those that the gateway returns and those of the connection to the gateway.

Each family calls for a different reaction: a call with a `Refused` error (`NotAllowed`, `NotFound`, `Conflict`, `Gone`,
`Malformed`) will be refused again, while one with `Unavailable` or `Unreachable` can be retried later. Each of the
gateway's error codes has a class below these (`lethe.contract.problems`, and the `contract` of each feature).
"""

from lethe.contract.problems import (
    CertificateBeyondLimits as CertificateBeyondLimits,
    CertificateInvalid as CertificateInvalid,
    Conflict as Conflict,
    FieldError as FieldError,
    Gone as Gone,
    InputInvalid as InputInvalid,
    Malformed as Malformed,
    NotAllowed as NotAllowed,
    NotFound as NotFound,
    Problem as Problem,
    Refused as Refused,
    Unauthenticated as Unauthenticated,
    Unavailable as Unavailable,
)


class Unreachable(Problem, title="The server is unreachable"):
    """The gateway did not respond. A call that changes something may nevertheless have taken effect."""

    status = None


class AnswerInvalid(Problem, title="The answer cannot be read"):
    """The server that responded is not Lethe, or runs a version that this package does not understand."""

    status = None


class WaitTimedOut(Problem, TimeoutError, title="Timed out waiting"):
    """An operation did not finish within the time limit. It is still in progress."""

    status = None


class NotExpressible(Problem, title="The model cannot be written as ONNX"):
    """The model, or the encoding of its rows, cannot be written as ONNX; `errors` names the columns. No file was
    returned."""

    status = None
