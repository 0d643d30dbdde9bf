"""Patterns of texts that callers send mean in Python the same as in the OpenAPI document."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest
from fastapi.routing import APIRoute
from hypothesis import given, strategies
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from app.config import Settings
from app.features.protocols.parsing import ProtocolMessage
from app.main import create_app
from lethe.contract.fields import Body, Query
from lethe.contract.tenants import Policy


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield base
    for model in base.__subclasses__():
        yield from _models(model)


def _texts(kind: Any, metadata: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the pattern and the annotated type of each text within a type."""
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        metadata = [*(part for item in more for part in (item.metadata if isinstance(item, FieldInfo) else [item]))]
    if kind is str:
        for pattern in (item.pattern for item in metadata if getattr(item, "pattern", None)):
            yield pattern, Annotated[(str, *metadata)]
    for part in get_args(kind):
        yield from _texts(part, [])


def _fields() -> dict[str, tuple[str, TypeAdapter[str]]]:
    """Return the pattern and the validator of each text that callers send, keyed by its field. Equal texts appear
    once."""
    routes = [route for route in create_app(Settings()).routes if isinstance(route, APIRoute)]
    fields = {
        f"{model.__name__}.{name}": (field, model.model_config.get("regex_engine"))
        for base in (Body, Query, ProtocolMessage, Policy)
        for model in _models(base)
        for name, field in model.model_fields.items()
    } | {
        f"{route.path} {parameter.name}": (parameter.field_info, None)
        for route in routes
        for parameter in (*route.dependant.path_params, *route.dependant.query_params)
    }
    texts = {
        place: (pattern, text, engine or "rust-regex")
        for place, (field, engine) in reversed(fields.items())
        for pattern, text in _texts(field.annotation, field.metadata)
    }
    unique = {repr(of_place[1:]): place for place, of_place in texts.items()}.values()
    return {
        place: (pattern, TypeAdapter(text, config=ConfigDict(regex_engine=engine)))
        for place, (pattern, text, engine) in texts.items()
        if place in unique
    }


FIELDS = _fields()


@pytest.mark.slow
@given(data=strategies.data())
def test_patterns_refuse_a_trailing_line_feed(data: strategies.DataObject) -> None:
    """A text that ends with a line feed is refused unless the pattern explicitly permits a final line feed."""
    for place, (pattern, adapter) in FIELDS.items():
        documented = re.compile(pattern.removesuffix("$"))
        text = data.draw(strategies.from_regex(documented, fullmatch=True), place).rstrip("\n") + "\n"
        if documented.fullmatch(text) is None:
            with pytest.raises(ValidationError):
                adapter.validate_python(text)


def test_patterns_of_all_kinds_of_fields_are_compared() -> None:
    """The fields whose patterns are compared include object keys, optional fields, list elements, protocol messages and
    path parameters."""
    patterns = {pattern for pattern, _ in FIELDS.values()}
    assert {"^[A-Z]{2}$", "^[a-z][a-z0-9_]{1,30}$", r"^2(\.\d{1,3})?$", "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"} <= patterns
