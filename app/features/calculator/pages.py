"""Calculator pages: each theorem with its value and a form for its parameters."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import Query, Response

from app.features.calculator import endpoints as bounds
from app.features.desk import forms, languages, menu, rendering as pages, request_context
from lethe.contract.problems import Problem
from lethe.features.calculator.contract import BoundIn, BoundOut, BoundParameterOut, BoundUnknown

router = pages.new_router()


@router.get("/calculator")
def list_bounds(context: request_context.TheContext, sought: Annotated[str, Query(max_length=100)] = "") -> Response:
    """List the theorems whose name, title and reference together contain every word of `sought`."""
    words = sought.lower().split()
    theorems = context.ask(bounds.list_bounds).items
    texts = [f"{bound.name} {bound.title} {bound.reference}".lower() for bound in theorems]
    matches = [bound for bound, text in zip(theorems, texts, strict=True) if all(word in text for word in words)]
    return context.page("calculator/list.html", bounds=matches, sought=sought, of=len(theorems))


@router.get("/calculator/{name}")
def show_bound(context: request_context.TheContext, name: str) -> Response:
    """Show a theorem with its form and, if the URL has parameters, its value, so that a value can be linked to."""
    bound = next((item for item in context.ask(bounds.list_bounds).items if item.name == name), None)
    if bound is None:
        raise BoundUnknown("There is no such theorem in the calculator.")
    fields = dict(context.request.query_params)
    is_asked = any(parameter.name in fields for parameter in bound.parameters)
    params = _params(bound, fields) if is_asked else {}
    outputs, error = None, None
    try:
        if is_asked:
            outputs = context.ask(bounds.evaluate_bound, name=name, body=BoundIn(params=params))
    except Problem as fault:
        error = fault
    return context.page(
        "calculator/one.html",
        bound=bound,
        paired=_paired,
        written=fields,
        is_asked=is_asked,
        outputs=outputs,
        error=error,
    )


def _params(bound: BoundOut, fields: Mapping[str, str]) -> dict[str, Any]:
    """Parse the form's parameters for the API. Malformed values are passed on, for the API to refuse."""
    params: dict[str, Any] = {}
    for parameter in bound.parameters:
        text = fields.get(parameter.name, "").strip()
        if parameter.kind == "boolean":
            params[parameter.name] = text == "on"
        elif text:
            params[parameter.name] = _value(parameter, text)
    return params


def _value(parameter: BoundParameterOut, text: str) -> Any:
    match parameter.kind:
        case "real" | "integer":
            return forms.parse_number(text)
        case "reals" | "integers":
            return [forms.parse_number(item) for item in text.replace(",", " ").split()]
        case "words":
            return text.replace(",", " ").split()
        case "segments":
            return [[forms.parse_number(part) for part in item.split(":")] for item in text.replace(",", " ").split()]
        case _:
            return text


def _paired(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the options of a select field, each labelled with its value."""
    return [(name, name) for name in names]


PAGES = (router,)
MENU = (menu.MenuEntry(50, languages.marked("Calculator"), f"{pages.ROOT}/calculator", bounds.list_bounds, "evidence"),)
