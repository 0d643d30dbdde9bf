"""Forms on pages: their fields, and the messages about invalid values shown next to those fields."""

import math
from typing import Annotated, Any, TypeVar

from fastapi import Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.datastructures import FormData, UploadFile

from app.features.desk import glossary, languages, wording
from lethe.contract.problems import FieldError, InputInvalid, Problem

M = TypeVar("M", bound=BaseModel)


def text(form: FormData, name: str) -> str:
    """Return the text of a field without surrounding white space; "" if the form lacks the field."""
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


def file_in(form: FormData, name: str) -> UploadFile | None:
    """Return the file of a field; None if no file was chosen."""
    file = form.get(name)
    return file if isinstance(file, UploadFile) and file.filename else None


def checked(body: type[M], **fields: Any) -> M:
    """Parse the fields of a form as `body`. Raises `InputInvalid`."""
    try:
        return body(**fields)
    except ValidationError as error:
        raise InputInvalid(
            languages.gettext("Check the marked fields, and send the form again."), in_words(error)
        ) from None


def in_words(error: ValidationError | RequestValidationError) -> list[FieldError]:
    """Describe each fault, with its path and without the invalid value."""
    return [FieldError(".".join(map(str, fault["loc"])) or "form", _sentence(fault)) for fault in error.errors()]


def fault_of(error: Problem | None, field: str) -> str | None:
    """Return the message to show next to a field; None if neither the field nor any part of it is invalid."""
    faults = error.errors if error else ()
    return next(
        (wording.message(fault.message, capital=True) for fault in faults if field in fault.path.split(".")), None
    )


def place_of(fault: FieldError) -> str:
    """Return the location of a fault: the field's name in words, or the line and column of a row."""
    parts = fault.path.split(".")
    return wording.words(parts[-1]) if all(part.isidentifier() for part in parts) else fault.path


def _sentence(fault: Any) -> str:
    context = {
        name: f"{value:g}" if isinstance(value, float) else value for name, value in fault.get("ctx", {}).items()
    }
    match fault["type"]:
        case "string_too_short" if context["min_length"] == 1:
            return languages.gettext("Fill this in.")
        case "string_too_short":
            return languages.gettext("Enter at least {least} characters.").format(least=context["min_length"])
        case "value_error":
            # A sentence of Lethe's own contract.
            return wording.sentence(str(context["error"]))
        case kind:
            faults = glossary.labels("faults")
            return faults.get(kind, faults["other"]).format(**context)


_EmptyIsNone = BeforeValidator(lambda value: value or None)

OptionalCount = Annotated[Annotated[int, Field(ge=1, le=2**31 - 1)] | None, _EmptyIsNone, Query()]
OptionalPositive = Annotated[Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None, _EmptyIsNone, Query()]
OptionalProbability = Annotated[Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None, _EmptyIsNone, Query()]


def parse_number(text: str) -> int | float | str:
    """Parse a finite number; return any other text, such as "1/n" or "inf", unchanged."""
    for kind in (int, float):
        try:
            value = kind(text)
            if math.isfinite(value):
                return value
        except (ValueError, OverflowError):
            continue
    return text


def parse_optional_number(text: str) -> int | float | str | None:
    """Parse the value of a number field; None if the field is empty."""
    return parse_number(text) if text else None
