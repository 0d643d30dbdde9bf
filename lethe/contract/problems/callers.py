"""Callers that are not known, may not do this, or call too often."""

from collections.abc import Sequence

from lethe.contract.problems.families import FieldError, NotAllowed, Unavailable


class Unauthenticated(NotAllowed):
    code = "unauthenticated"
    title = "A valid API key is needed"
    status = 401


class ScopeMissing(NotAllowed):
    code = "scope_missing"
    title = "The API key lacks a scope"


class RateLimited(Unavailable):
    """`retry_after`: seconds until the next call is heard, a minute at most."""

    code = "rate_limited"
    title = "Too many calls in this minute"
    status = 429

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), *, retry_after: float | None = 60) -> None:
        super().__init__(detail, errors, retry_after=retry_after)


class FormRefused(NotAllowed):
    code = "form_refused"
    title = "The form did not come from a page of this session"


class MessageRefused(NotAllowed):
    code = "message_refused"
    title = "The signed message is not one of this agent to this business"


class IdentityStatementInvalid(NotAllowed):
    code = "identity_statement_invalid"
    title = "The identity statement does not hold"


class LoginRefused(NotAllowed):
    code = "login_refused"
    title = "This login is refused"
    status = 401


class IdentityRefused(NotAllowed):
    code = "identity_refused"
    title = "The identity provider's answer lets nobody in"
