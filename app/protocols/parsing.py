"""What somebody sent, as a value."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from app.errors import FieldError, InputInvalid

Message = TypeVar("Message", bound=BaseModel)


def parsed(model: type[Message], body: bytes) -> Message:
    """Raises `InputInvalid`, which says where the body is wrong and repeats nothing of it."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    raise InputInvalid(
        "The message does not have the form that the protocol asks for.",
        [FieldError(".".join(map(str, fault["loc"])) or "body", fault["msg"]) for fault in faults],
    )
