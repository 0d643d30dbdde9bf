"""Uploads of rows, as their endpoints share them: the file, whose rows are refused, what tells calls apart.

A file is spooled while it comes in (`app.api.forms`), read from there, and gone when the call ends.
"""

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Form, UploadFile
from numpy.typing import NDArray

from app.access.idempotency import Once
from app.api.calls import Call
from app.api.forms import folder
from app.deletion import suppression
from app.encoders import running, under_way
from app.installations import Installation
from app.rows import batches
from app.rows.batches import FeaturesOf
from app.rows.uploads import Suppressed, Upload
from app.vault.spool import Spool
from lethe.contract.problems import FieldError, InputInvalid
from lethe.encoders.rows import check_fit, numbers_of
from lethe.encoding.rows import Schema
from lethe.encoding.targets import Target

_UNPACKED = 4
"""Ratio by which the content of an upload may be larger than the file may be."""
WhatOfSuppressed = Annotated[
    Literal["refuse", "skip"], Form(description="What to do about rows of people who asked to be forgotten.")
]


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
def network_of(
    call: Call, network_id: str | None, *, schema: Schema | None, file: UploadFile, name: str
) -> Iterator[FeaturesOf | None]:
    """The network of a dataset at work on this file until the block ends, if it has one; it is shown how far that is.
    `name`: of the upload.

    Raises `NetworkUnknown`, `SchemaInvalid` where the schema makes other numbers than the network takes; what it is
    given raises `InputInvalid` where the vectors of a file are of another length, and `NetworkFailed`.
    """
    if network_id is None:
        yield None
        return
    with call.reading() as session:
        network = running.opened(session, call.installation.settings, network_id)
    if schema is not None:
        check_fit(schema, network.input_size)

    settings, num_encoded = call.installation.settings, 0
    shown = under_way.metered(
        settings, tenant_id=call.caller.tenant_id, name=name, network_id=network_id, num_bytes=file.size or 0
    )
    with shown as meter, network.started() as encoder:

        def features_of(raw: NDArray[np.float64], num_in_file: int | None) -> NDArray[np.floating[Any]]:
            nonlocal num_encoded
            if raw.shape[1] != network.input_size:
                fault = FieldError("x", numbers_of(network.input_size))
                raise InputInvalid("The vectors do not fit the network.", [fault])
            before = num_encoded
            num_encoded += len(raw)
            return encoder.encode(raw, told=lambda done: meter.advance(before + done, num_in_file))

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
