"""The families of conditions, each of which says what to do: `Refused` will be refused again, `Unavailable` may be
tried later."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """The place where a malformed input is wrong: a dotted path (or `line 12, column age`) and what was expected
    there."""

    path: str
    message: str


class Problem(Exception):
    """A named condition. `code` is stable and public; `detail` is for people. `status`: of the HTTP answer, None where
    there was none; `retry_after`: seconds after which the gateway would like to be asked again."""

    code: str = "internal_error"
    title: str = "Something went wrong"
    status: int | None = 500

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after = retry_after

    @property
    def line(self) -> str:
        """Everything there is to say, in one line: the code, the detail, and the places at fault."""
        return f"{self.code}: " + "; ".join([self.detail, *(f"{fault.path}: {fault.message}" for fault in self.errors)])


class Unavailable(Problem):
    """The gateway could not do it now: later it may."""

    code = "unavailable"
    title = "Not available now"
    status = 503


class Refused(Problem):
    """The gateway will not do it: the same call will be refused again."""

    code = "refused"
    title = "The call is refused"
    status = 400


class NotAllowed(Refused):
    """The API key is not valid, or may not do this."""

    code = "not_allowed"
    title = "The caller may not do this"
    status = 403


class NotFound(Refused):
    """There is no such thing."""

    code = "not_found"
    title = "There is no such thing"
    status = 404


class Conflict(Refused):
    """Not in the present state."""

    code = "conflict"
    title = "This cannot be done in the present state"
    status = 409


class Gone(Refused):
    """It was destroyed."""

    code = "gone"
    title = "It was destroyed"
    status = 410


class Malformed(Refused):
    """The call takes something else than was sent; `errors` says where."""

    code = "malformed"
    title = "The call is malformed"
    status = 422
