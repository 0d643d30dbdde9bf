"""The fields that are known at a place of a body, for a caller who named another."""

import typing
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lethe.contract.problems import FieldError, InputInvalid
from lethe.contract.spelling import expected
from lethe.encoding.values import is_name

_LONGEST_SHOWN = 60

_KINDS = {"bool_type": "expected true or false", "bool_parsing": "expected true or false"}
"""The expectation, where pydantic does not say it."""


def expectation(fault: Any, body: Any) -> str:
    """The expectation at the place of one of pydantic's faults. `body`: the type of what was sent, if it is known."""
    if fault["type"] == "extra_forbidden" and body is not None:
        *place, name = fault["loc"]
        return f"is no field here: {expected(_known_at(body, place), found=name)}"
    return _KINDS.get(fault["type"], str(fault["msg"]))


async def known_only(request: Request) -> None:
    """A dependency of forms, whose unknown fields nobody would look at. Raises `InputInvalid`."""
    known = {field.alias for field in request.scope["route"].dependant.body_params}
    names = dict.fromkeys(name for name, _ in (await request.form()).multi_items())
    shown = [name for name in names if is_name(name) and len(name) <= _LONGEST_SHOWN]
    faults = [
        FieldError(name if name in shown else "form", f"is no field of this form: {expected(known, found=name)}")
        for name in names
        if name not in known
    ]
    if faults:
        raise InputInvalid("The form has what this call does not know.", faults)


def _known_at(annotation: Any, place: Sequence[str | int]) -> set[str]:
    models = _models(annotation)
    for name in place:  # of a list or an object without fields of its own it says which: that is no field
        inner = [_fields(model)[str(name)] for model in models if str(name) in _fields(model)]
        models = [one for field in inner for one in _models(field.annotation)] if inner else models
    return {name for model in models for name in _fields(model)}


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The bodies that something of this type is made of: itself, or what it lists, maps to or chooses from."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in typing.get_args(annotation) for model in _models(inner)]
