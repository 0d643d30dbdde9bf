"""Uploads: form fields generated from the contract, and steps shared by the upload endpoints.

A file is spooled as it arrives (`app.api.forms`), read from the spool, and deleted when the call ends.
"""

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from fastapi import Form, UploadFile
from pydantic.fields import FieldInfo

from app import installations, telemetry
from app.access.idempotency import Once
from app.api import calls, forms
from app.audit import service as audit
from app.catalogue import datasets
from app.deletion import search_repository
from app.rows import formats, uploads
from app.vault.store import Spool
from lethe import sockets
from lethe.contract import fields, problems
from lethe.encoding.rows import Schema, check_fit

_MAX_EXPANSION = 4
"""Maximum ratio of an upload's unpacked size to the size limit of its file."""
_MAX_TEXT_BYTES = 4 * 2**20
"""Maximum size of a field that is sent as a file."""

F = TypeVar("F", bound=Callable[..., Any])


def takes(form: type[fields.Form]) -> Callable[[F], F]:
    """Return a decorator for an endpoint that takes `call`, `once`, `file`, and a parameter of type `form`.

    For FastAPI, the endpoint has a parameter for each field of the form. JSON fields are parsed but not validated,
    because `lethe.encoding` describes their faults better. `once` also distinguishes calls by the file and all fields.
    """
    form_fields = form.model_fields

    def decorate(endpoint: F) -> F:
        own = inspect.signature(endpoint).parameters
        [form_name] = [name for name, parameter in own.items() if parameter.annotation is form]

        @functools.wraps(endpoint)
        def called(*, call: calls.Call, once: Once, file: UploadFile, **arguments: Any) -> Any:
            values: dict[str, Any] = {
                name: _content(field.alias or name, arguments.pop(name)) for name, field in form_fields.items()
            }
            once = _with_form(call.installation, once, file, values)
            values |= {
                name: _json(field.alias or name, values[name])
                for name, field in form_fields.items()
                if not _is_text(field)
            }
            return endpoint(call=call, once=once, file=file, **arguments, **{form_name: form.model_construct(**values)})

        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                *(parameter for name, parameter in own.items() if name != form_name),
                *(_parameter(name, field) for name, field in form_fields.items()),
            ]
        )
        return called  # type: ignore[return-value]

    return decorate


def _is_text(field: FieldInfo) -> bool:
    """Return True for a plain text field, False for a JSON field."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)] or [field.annotation]
    plain = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]
    return get_origin(field.annotation) is Literal or all(kind in (str, float) for kind in plain)


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """Return the form parameter for a field. JSON fields are annotated as text, all others with their own type."""
    annotation: Any = field.annotation
    description = field.description
    if not _is_text(field):
        annotation = UploadFile | str | None if Path in get_args(annotation) else str | None
        description = f"{description} Sent as JSON."
    form = Form(description=description, alias=field.alias)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[annotation, *field.metadata, form],
        default=inspect.Parameter.empty if field.is_required() else field.default,
    )


def _content(name: str, value: UploadFile | str | float | None) -> str | float | None:
    """Return a field's content; the field may be sent as a file. Raises `SchemaInvalid` if the file is too long."""
    if value is None or isinstance(value, str | float):
        return value
    text = value.file.read(_MAX_TEXT_BYTES + 1)
    if len(text) > _MAX_TEXT_BYTES:
        raise problems.SchemaInvalid.too_long(
            [problems.FieldError(name, f"expected at most {_MAX_TEXT_BYTES} bytes")], name=name
        )
    return text.decode(errors="replace")


def _json(name: str, text: Any) -> object:
    if text is None:
        return None
    if fields.is_deep(text.encode(errors="replace")):
        raise problems.UploadTooLarge.depth(max_depth=fields.MAX_DEPTH)
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise problems.SchemaInvalid.not_json([problems.FieldError(name, "expected JSON")], name=name) from error
    if value is None:
        raise problems.SchemaInvalid.null([problems.FieldError(name, "expected a value, or no such field")], name=name)
    return value


def _with_form(installation: installations.Installation, once: Once, file: UploadFile, values: dict[str, Any]) -> Once:
    if once.name is None:
        return once
    spooled = _spooled(file)
    digest = hashlib.file_digest(spooled, "sha256").digest()
    spooled.seek(0)
    parts = [f"{name}={value}".encode() for name, value in values.items() if value is not None]
    fingerprint = installation.keys.fingerprint(once.fingerprint.encode(), digest, *parts)
    return Once(name=once.name, fingerprint=fingerprint)


def upload(call: calls.Call, *, file: UploadFile, **of_file: Any) -> uploads.RowUpload:
    """Return the upload for a file with rows about people in the caller's tenant. `of_file` sets the upload's other
    fields."""
    return uploads.RowUpload(
        file=_spooled(file),
        folder=forms.folder(call.installation.settings),
        tenant_id=call.caller.tenant_id,
        max_bytes=_MAX_EXPANSION * call.installation.settings.max_upload_bytes,
        admit=call.require_room,
        **of_file,
    )


def observed(
    call: calls.Call, kind: str | None
) -> tuple[Callable[[Iterable[str]], list[str]], Callable[[], list[str]]]:
    """Return two functions: the first maps ids of a kind to pseudonyms, the second returns advice about these ids."""
    references = call.references(kind)
    for observe in sockets.plugs("app.features", "hooks", "OBSERVES_SUBJECTS"):
        return observe(call, kind, references)  # type: ignore[no-any-return]
    return references, list


@contextmanager
def network_of(
    call: calls.Call, network_id: str | None, *, schema: Schema | None, file: UploadFile, name: str
) -> Iterator[formats.FeaturesOf | None]:
    """Yield a function that computes rows' features with a dataset's network, or None if there is no network. Inside
    the block, the upload is listed under `name` with its progress.

    Raises `NetworkUnknown`, and `SchemaInvalid` if the length of encoded records differs from the network's input size.
    The yielded function raises `InputInvalid` for vectors of a different length, and `NetworkFailed`.
    """
    if network_id is None:
        yield None
        return
    with call.reading() as session:
        network = datasets.network_keeper().opened(session, call.installation.settings, network_id)
    if schema is not None:
        check_fit(schema, network.input_size)
    with network.encoding(tenant_id=call.caller.tenant_id, name=name, num_bytes=file.size or 0) as features_of:
        yield features_of


def suppressed(call: calls.Call, dataset_id: str, *, skip: bool) -> uploads.Suppressed:
    """Return the filter for rows of suppressed people in an upload; `*` stands for a dataset being created."""

    def among(subject_refs: Collection[str]) -> set[str]:
        # Open a session each time, because an upload takes longer than a snapshot should last.
        with call.reading() as session:
            return search_repository.suppressed_people(session, dataset_id, subject_refs)

    matched = functools.partial(record_match, call, dataset_id)
    return uploads.Suppressed(among=among, skip=skip, may_know=not call.caller.discreet, matched=matched)


def record_match(call: calls.Call, dataset_id: str, num_rows: int | None = None) -> None:
    """Record that an upload contains rows about suppressed people, since it could be a probe for a single person.
    `num_rows` is the number of these rows, or None if the people were suppressed during the upload."""
    object_id = call.caller.tenant_id if dataset_id == search_repository.ANYWHERE else dataset_id
    with call.writing() as session:
        audit.record(session, "suppressions.matched", object_id, rows=num_rows)
    telemetry.logger().warning("suppressions.matched")


def _spooled(file: UploadFile) -> Spool:
    spooled: object = file.file
    if not isinstance(spooled, Spool):
        raise TypeError("Expected a spooled file: its endpoint has no SpooledRoute.")
    return spooled
