"""Parsing of external messages into typed values."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lethe.contract.problems import FieldError, InputInvalid


class ProtocolMessage(BaseModel):
    """Message whose values are neither quoted in errors nor kept in pydantic's string cache."""

    model_config = ConfigDict(
        frozen=True, strict=True, hide_input_in_errors=True, regex_engine="python-re", cache_strings="keys"
    )


Sent = TypeVar("Sent", bound=ProtocolMessage)


def parsed(model: type[Sent], body: bytes) -> Sent:
    """Parse a body. Raises `InputInvalid`, which names the invalid fields without quoting their values."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    raise InputInvalid(
        "The message does not have the form that the protocol asks for.",
        [FieldError(".".join(map(str, fault["loc"])) or "body", fault["msg"]) for fault in faults],
    )
