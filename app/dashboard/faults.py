"""Faults of forms in plain words, each at its field."""

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.dashboard.languages import gettext, marked
from app.dashboard.wording import message, sentence, words
from lethe.contract.problems import FieldError, Problem

_SENTENCES: Mapping[str, str] = {
    "missing": marked("Fill this in."),
    "string_too_long": marked("Write at most {max_length} characters."),
    "string_pattern_mismatch": marked("This has characters that cannot stand here."),
    "string_type": marked("Fill this in."),
    "too_short": marked("Choose at least {min_length}."),
    "too_long": marked("Choose at most {max_length}."),
    "int_type": marked("Write a whole number."),
    "int_parsing": marked("Write a whole number."),
    "int_from_float": marked("Write a whole number."),
    "float_type": marked("Write a number."),
    "float_parsing": marked("Write a number."),
    "finite_number": marked("Write a number."),
    "multiple_of": marked("Write a multiple of {multiple_of}."),
    "greater_than": marked("Write a number above {gt}."),
    "greater_than_equal": marked("Write {ge} or more."),
    "less_than": marked("Write a number below {lt}."),
    "less_than_equal": marked("Write {le} or less."),
    "enum": marked("Choose one of the list."),
    "literal_error": marked("Choose one of the list."),
    "bool_type": marked("Choose yes or no."),
    "bool_parsing": marked("Choose yes or no."),
    "timezone_aware": marked("Write a date and a time with its zone."),
    "datetime_type": marked("Write a date."),
    "datetime_parsing": marked("Write a date."),
    "datetime_from_date_parsing": marked("Write a date."),
    "date_parsing": marked("Write a date."),
    "dict_type": marked("Write a JSON object."),
    "list_type": marked("Write a list."),
    "model_type": marked("Write a JSON object."),
    "extra_forbidden": marked("This is not known here."),
}
"""By pydantic's types of faults, with what they say of themselves in braces."""
_OTHERWISE = marked("This is not what is expected here.")


def in_words(error: ValidationError | RequestValidationError) -> list[FieldError]:
    """List the faults, each at its place; nothing of what was written."""
    return [FieldError(".".join(map(str, fault["loc"])) or "form", _sentence(fault)) for fault in error.errors()]


def fault_of(error: Problem | None, field: str) -> str | None:
    """The words to stand beside a field of a form, if anything is wrong there, or in what it holds."""
    found = (one.message for one in error.errors if field in one.path.split(".")) if error else ()
    return next((message(one, capital=True) for one in found), None)


def place_of(fault: FieldError) -> str:
    """The place of a fault, for people: a field by its name in words; of a row, its line and column."""
    parts = fault.path.split(".")
    return words(parts[-1]) if all(part.isidentifier() for part in parts) else fault.path


def _sentence(fault: Any) -> str:
    given = {name: f"{said:g}" if isinstance(said, float) else said for name, said in fault.get("ctx", {}).items()}
    match fault["type"]:
        case "string_too_short":
            least = given["min_length"]
            if least == 1:
                return gettext("Fill this in.")
            return gettext("Write at least {least} characters.").format(least=least)
        case "value_error":  # a sentence of ours
            return sentence(str(given["error"]))
        case kind:
            return gettext(_SENTENCES.get(kind, _OTHERWISE)).format(**given)
