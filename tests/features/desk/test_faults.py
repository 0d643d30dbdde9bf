"""Faults in a form: shown in words next to their field, with the input kept."""

import html
import re
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator

from app.features.desk.forms import fault_of, in_words
from lethe.contract.models import ModelIn
from lethe.contract.problems import FieldError, InputInvalid
from tests.features.desk.browsing import Browser

Make = Callable[..., dict[str, Any]]


def said(body: type[BaseModel], **fields: Any) -> dict[str, str]:
    """Return the messages of validation faults by path."""
    try:
        body(**fields)
    except ValidationError as error:
        return {fault.path: fault.message for fault in in_words(error)}
    return {}


def marked(page: str) -> dict[str, str]:
    """Return the marked fields, and the text next to them."""
    found = {}
    for field in re.findall(r"<(?:input|select|textarea|fieldset)[^>]*aria-invalid=\"true\"[^>]*>", page):
        [about] = re.findall(r'aria-describedby="([^" ]+)', field)
        [text] = re.findall(rf'id="{about}">([^<]+)<', page)
        found[about.removesuffix("-fault")] = html.unescape(text)
    return found


def test_errors_are_explained_with_the_violated_limits() -> None:
    """Each error is listed under the path of its field, as a sentence that states the violated limit."""
    asked = {"name": "", "dataset_id": "ds_1", "l2": -1, "learn_steps": 1.5, "audit": {"lanes": 3}, "more": 1}
    assert said(ModelIn, **asked) == {
        "name": "Fill this in.",
        "l2": "Enter a number above 0.",
        "learn_steps": "Enter a whole number.",
        "audit.lanes": "Enter a multiple of 2.",
        "more": "Unknown field.",
    }


def test_messages_of_validators_are_unchanged() -> None:
    """Messages from our own validators are shown unchanged, except that they are capitalised. An unexpected error is
    also described in a sentence."""

    class Asked(BaseModel):
        name: str
        day: int = Field(default=1, ge=1)

        @field_validator("name")
        @classmethod
        def _known(cls, value: str) -> str:
            raise ValueError("expected a known name")

    assert said(Asked, name="x", day=b"\xff") == {"name": "Expected a known name", "day": "Enter a whole number."}


def test_an_error_is_found_by_its_field() -> None:
    """An error in a list element or in a nested object is found by the name of its form field."""
    error = InputInvalid("", [FieldError("target.epsilon", "expected more"), FieldError("scopes.0", "unknown")])
    assert fault_of(error, "epsilon") == "Expected more"
    assert fault_of(error, "scopes") == "Unknown"
    assert fault_of(error, "name") is None
    assert fault_of(None, "name") is None


def test_an_invalid_field_is_marked(officer: Browser) -> None:
    """An invalid field is marked, its error is explained, and the form keeps its input."""
    page = officer.post("/admin/keys", name="crm", calls_per_minute="many", sees="all").text
    assert marked(page) == {"calls_per_minute": "Enter a whole number.", "scopes": "Choose at least 1."}
    assert 'value="crm"' in page
    assert 'value="many"' in page
    assert '<option value="all" selected>' in page
    assert "after validation" not in page


def test_an_incomplete_decision_stays_open(officer: Browser, forget: Make) -> None:
    """A rejection without an explanation is shown again with the form still open, an error at the explanation's field,
    and the chosen ground kept. If several requests were selected, the selection is kept too."""
    made = forget("p1", identity_verified=False)["id"]
    one = officer.post(f"/admin/requests/{made}/reject", ground="legal_claims", explanation=" ")
    asked = {"decision": "reject", "ground": "legal_claims", "explanation": "", "chosen": made}
    many = officer.post("/admin/requests/decide", filter_regulation="gdpr", **asked)
    for answer, field in ((one, "explanation"), (many, "chosen-explanation")):
        assert answer.status_code == 422
        assert marked(answer.text) == {field: "Fill this in."}
        assert '<option value="legal_claims" selected>' in answer.text
        assert re.search(r'<details class="decision"[^>]* open>', answer.text)
    assert re.search(rf'value="{made}" checked', many.text)
