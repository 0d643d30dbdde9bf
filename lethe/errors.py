"""Everything that can go wrong with a call, as one class with a subclass for each thing to do about it.

No text here repeats what was sent or what was answered, save `detail` and `errors` of the gateway's own problems, which
never quote anything from a person's record.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """Where what was sent is malformed: a dotted path, and what was expected there."""

    path: str
    message: str


class Problem(Exception):
    """A call that came to nothing. `code` is stable; `status` is of the HTTP answer, None where there was none;
    `retry_after`: seconds after which the gateway would like to be asked again."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        title: str = "",
        status: int | None = None,
        errors: tuple[FieldError, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.title = title
        self.status = status
        self.detail = detail
        self.errors = errors
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code}: " + "; ".join([self.detail, *(f"{fault.path}: {fault.message}" for fault in self.errors)])


class Unreachable(Problem):
    """Nothing answered. A call that changes something may have been made nevertheless."""


class Unavailable(Problem):
    """The gateway could not do it now (429, 5xx): later it may."""


class Refused(Problem):
    """The gateway will not do it (4xx): the same call will be refused again."""


class NotAllowed(Refused):
    """The API key is not valid, or lacks a scope (401, 403)."""


class NotFound(Refused):
    """There is no such thing (404)."""


class Conflict(Refused):
    """Not in the present state (409)."""


class Gone(Refused):
    """It was destroyed (410): the weights of a version that is no longer live."""


class Malformed(Refused):
    """What was sent is not what the call takes (400, 413, 422); `errors` says where."""


class CertificateInvalid(Malformed):
    """The signature, or a number of the statement, does not hold."""


class CertificateBeyondLimits(CertificateInvalid):
    """It holds, and guarantees less than the epsilon or delta that was asked for."""


class AnswerInvalid(Problem):
    """What answered is not Lethe, or not a version of it that this package understands."""


class WaitTimedOut(Problem, TimeoutError):
    """What was waited for had not happened in time; it goes on."""


_OF_CODE: dict[str, type[Refused]] = {
    "certificate_invalid": CertificateInvalid,
    "certificate_beyond_limits": CertificateBeyondLimits,
}
_OF_STATUS: dict[int, type[Refused]] = {
    400: Malformed,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Malformed,
    422: Malformed,
}


def kind_of(status: int, code: str) -> type[Problem]:
    """The class for an answer that is no success."""
    if code in _OF_CODE:
        return _OF_CODE[code]
    if status == 429 or status >= 500:
        return Unavailable
    return _OF_STATUS.get(status, Refused if status >= 400 else AnswerInvalid)
