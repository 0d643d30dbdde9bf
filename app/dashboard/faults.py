"""Faults of forms in plain words, each at its field."""

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.dashboard.wording import sentence, words
from lethe.contract.problems import FieldError, Problem

_SENTENCES: Mapping[str, str] = {
    "missing": "Fill this in.",
    "string_too_long": "Write at most {max_length} characters.",
    "string_pattern_mismatch": "This has characters that cannot stand here.",
    "string_type": "Fill this in.",
    "too_short": "Choose at least {min_length}.",
    "too_long": "Choose at most {max_length}.",
    "int_type": "Write a whole number.",
    "int_parsing": "Write a whole number.",
    "int_from_float": "Write a whole number.",
    "float_type": "Write a number.",
    "float_parsing": "Write a number.",
    "finite_number": "Write a number.",
    "multiple_of": "Write a multiple of {multiple_of}.",
    "greater_than": "Write a number above {gt}.",
    "greater_than_equal": "Write {ge} or more.",
    "less_than": "Write a number below {lt}.",
    "less_than_equal": "Write {le} or less.",
    "enum": "Choose one of the list.",
    "literal_error": "Choose one of the list.",
    "bool_type": "Choose yes or no.",
    "bool_parsing": "Choose yes or no.",
    "timezone_aware": "Write a date and a time with its zone.",
    "datetime_type": "Write a date.",
    "datetime_parsing": "Write a date.",
    "datetime_from_date_parsing": "Write a date.",
    "date_parsing": "Write a date.",
    "dict_type": "Write a JSON object.",
    "list_type": "Write a list.",
    "model_type": "Write a JSON object.",
    "extra_forbidden": "This is not known here.",
}
"""By pydantic's types of faults, with what they say of themselves in braces."""
_OTHERWISE = "This is not what is expected here."


def in_words(error: ValidationError | RequestValidationError) -> list[FieldError]:
    """List the faults, each at its place; nothing of what was written."""
    return [FieldError(".".join(map(str, fault["loc"])) or "form", _sentence(fault)) for fault in error.errors()]


def fault_of(error: Problem | None, field: str) -> str | None:
    """The words to stand beside a field of a form, if anything is wrong there, or in what it holds."""
    found = (one.message for one in error.errors if field in one.path.split(".")) if error else ()
    return next(map(sentence, found), None)


def place_of(fault: FieldError) -> str:
    """The place of a fault, for people: a field by its name in words; of a row, its line and column."""
    parts = fault.path.split(".")
    return words(parts[-1]) if all(part.isidentifier() for part in parts) else fault.path


def _sentence(fault: Any) -> str:
    given = {name: f"{said:g}" if isinstance(said, float) else said for name, said in fault.get("ctx", {}).items()}
    match fault["type"]:
        case "string_too_short":
            least = given["min_length"]
            return "Fill this in." if least == 1 else f"Write at least {least} characters."
        case "value_error":  # a sentence of ours
            return sentence(str(given["error"]))
        case kind:
            return _SENTENCES.get(kind, _OTHERWISE).format(**given)
