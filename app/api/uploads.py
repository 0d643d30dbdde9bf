"""Uploads of rows, as their endpoints share them: the file, whose rows are refused, what tells calls apart.

A file is spooled while it comes in, under a key that only this process has (`app.vault.spool`), read from there,
and gone when the call ends. The framework would spool it in clear.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, cast

import numpy as np
from fastapi import Form, HTTPException, Request, Response, UploadFile
from fastapi.routing import APIRoute
from numpy.typing import NDArray
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers
from starlette.formparsers import MultiPartException, MultiPartParser

from app.access.idempotency import Once
from app.api.calls import Call
from app.config import Settings
from app.deletion import suppression
from app.encoders import running
from app.installations import Installation
from app.rows import batches
from app.rows.batches import FeaturesOf
from app.rows.uploads import Suppressed, Upload
from app.vault import spool
from app.vault.spool import Spool
from lethe.contract.problems import FieldError, InputInvalid, SchemaInvalid
from lethe.encoding.rows import Schema
from lethe.encoding.targets import Target

_UNPACKED = 4
"""Ratio by which the content of an upload may be larger than the file may be."""
_MOST_PARTS = 8
"""Files of a form, and fields; a file takes a descriptor."""
WhatOfSuppressed = Annotated[
    Literal["refuse", "skip"], Form(description="What to do about rows of people who asked to be forgotten.")
]


def folder(settings: Settings) -> Path:
    """The folder of spools."""
    return settings.data_dir / "tmp"


class SpooledRoute(APIRoute):
    """An endpoint whose forms are spooled."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def spooled(request: Request) -> Response:
            spooling = _Request(request.scope, request.receive)
            try:
                return await answer(spooling)
            finally:
                await spooling.close()  # the form was read: its files are gone

        return spooled


class _Request(Request):
    async def _get_form(self, **limits: Any) -> FormData:
        media_type, _ = parse_options_header(self.headers.get("content-type"))
        if self._form is None and media_type == b"multipart/form-data":
            installation: Installation = self.app.state.installation
            try:
                self._form = await _Form(self.headers, self.stream(), folder=folder(installation.settings)).parse()
            except MultiPartException as error:
                raise HTTPException(status_code=400, detail=error.message) from None
        return await super()._get_form(**limits)  # any other form has no files


class _Form(MultiPartParser):
    def __init__(self, headers: Headers, stream: AsyncGenerator[bytes], *, folder: Path) -> None:
        super().__init__(headers, stream, max_files=_MOST_PARTS, max_fields=_MOST_PARTS)
        self._folder = folder

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        if part := self._current_part.file:
            part.file.close()  # nothing was written to it yet
            part.file = cast("BinaryIO", spool.create(self._folder))
            self._files_to_close_on_error[-1] = cast("Any", part.file)


def with_file(installation: Installation, once: Once, *, file: UploadFile, parts: tuple[str, ...]) -> Once:
    """The call, told apart from others by its file too."""
    if once.name is None:
        return once
    spooled = _spooled(file)
    digest = hashlib.file_digest(spooled, "sha256").digest()
    spooled.seek(0)
    fingerprint = installation.keys.fingerprint(once.fingerprint.encode(), digest, *(part.encode() for part in parts))
    return Once(name=once.name, fingerprint=fingerprint)


def upload(
    call: Call,
    *,
    file: UploadFile,
    kind: batches.Kind,
    schema: Schema | None,
    classes: tuple[str, ...],
    target: Target | None = None,
    few_rows: int = 0,
    features_of: FeaturesOf | None = None,
) -> Upload:
    """The rows of the file, of the caller's people."""
    return Upload(
        file=_spooled(file),
        kind=kind,
        schema=schema,
        classes=classes,
        target=target,
        folder=folder(call.installation.settings),
        subject_refs=call.subject_refs,
        max_bytes=_UNPACKED * call.installation.settings.max_upload_bytes,
        few_rows=few_rows,
        features_of=features_of,
    )


@contextmanager
def network_of(call: Call, network_id: str | None, *, schema: Schema | None) -> Iterator[FeaturesOf | None]:
    """The network of a dataset at work until the block ends, if it has one.

    Raises `NetworkUnknown`, `SchemaInvalid` where the schema makes other numbers than the network takes; what it is
    given raises `InputInvalid` where the vectors of a file are of another length, and `NetworkFailed`.
    """
    if network_id is None:
        yield None
        return
    with call.reading() as session:
        network = running.opened(session, call.installation.settings, network_id)
    expected = f"expected {network.input_size} numbers of a row, which the network takes"
    if schema is not None and (schema.random is not None or schema.num_features != network.input_size):
        raise SchemaInvalid("The schema does not fit the network.", [FieldError("schema", expected)])

    with network.started() as encoder:

        def features_of(raw: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
            if raw.shape[1] != network.input_size:
                raise InputInvalid("The vectors do not fit the network.", [FieldError("x", expected)])
            return encoder.encode(raw)

        yield features_of


def suppressed(call: Call, dataset_id: str, *, skip: bool) -> Suppressed:
    """The people whose rows this dataset must not take (`*`: one that is only being made)."""

    def among(subject_refs: Collection[str]) -> set[str]:
        with call.reading() as session:  # one each time: an upload takes longer than a snapshot should last
            return suppression.is_suppressed(session, dataset_id, subject_refs)

    return Suppressed(among=among, skip=skip)


def _spooled(file: UploadFile) -> Spool:
    spooled: object = file.file
    if not isinstance(spooled, Spool):
        raise TypeError("Expected a file that was spooled: its endpoint has no SpooledRoute.")
    return spooled
