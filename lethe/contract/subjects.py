"""The person whom a call is about."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from lethe.contract.fields import Body, Sha256


class SubjectIn(Body):
    """Whom a call is about: their id, or its hash where that is all the caller has."""

    subject_id: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    subject_sha256: Sha256 | None = Field(
        default=None,
        description="SHA-256 of the subject id (UTF-8, in the form of the tenant's rule), instead of the id.",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.subject_id is None) == (self.subject_sha256 is None):
            raise ValueError("expected either subject_id or subject_sha256")
        return self
