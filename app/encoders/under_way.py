"""Uploads whose rows go through a network at present: how far each is, for callers of any gateway of the data folder.

A file for each in a folder of its own, renewed about every second and gone when its rows are encoded. It has counts and
ids, and nothing of a row. One that is not renewed any more was left by a gateway that ended.
"""

import contextlib
import datetime
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.config import Settings
from app.db.tables import new_id

_RENEWED_SECONDS = 1.0
_STARTS_WITHIN = 120.0
"""Seconds, beyond those that a network may take for a batch, after which a file that is not renewed is left over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """An upload at work. `name`: of the dataset to be, or the id of the one that is added to; `num_bytes`: of the file;
    `num_rows`: of the file, None until it is known."""

    tenant_id: str
    name: str
    network_id: str
    num_bytes: int
    num_encoded: int = 0
    num_rows: int | None = None
    began_at: str


class Meter:
    """Writes down how far an upload is."""

    def __init__(self, file: Path, encoding: Encoding) -> None:
        self._file = file
        self._encoding = encoding
        self._written = -_RENEWED_SECONDS

    def advance(self, num_encoded: int, num_rows: int | None) -> None:
        """So many rows are encoded in all."""
        self._encoding = replace(self._encoding, num_encoded=num_encoded, num_rows=num_rows)
        if num_encoded == num_rows or time.monotonic() >= self._written + _RENEWED_SECONDS:
            self._written = time.monotonic()
            self._write()

    def _write(self) -> None:
        half = self._file.with_suffix(".half")
        with contextlib.suppress(OSError):  # the upload goes on, and nobody is told how far it is
            half.write_text(json.dumps(asdict(self._encoding)))
            half.replace(self._file)


@contextmanager
def metered(settings: Settings, *, tenant_id: str, name: str, network_id: str, num_bytes: int) -> Iterator[Meter]:
    """Show that an upload is under way until the block ends."""
    folder = _folder(settings)
    with contextlib.suppress(OSError):  # as below
        folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{new_id('enc')}.json"
    began_at = datetime.datetime.now(datetime.UTC).isoformat()
    meter = Meter(
        file,
        Encoding(tenant_id=tenant_id, name=name, network_id=network_id, num_bytes=num_bytes, began_at=began_at),
    )
    meter.advance(0, None)
    try:
        yield meter
    finally:
        for left in (file, file.with_suffix(".half")):
            with contextlib.suppress(OSError):  # it is taken away when it is old
                left.unlink(missing_ok=True)


def listed(settings: Settings, tenant_id: str) -> list[Encoding]:
    """The uploads of a tenant that are under way, the latest first."""
    found = []
    oldest = time.time() - settings.network_seconds - _STARTS_WITHIN
    for file in _folder(settings).glob("enc_*"):
        with contextlib.suppress(OSError, ValueError, TypeError):  # it has just ended, or is of another release
            if file.stat().st_mtime < oldest:
                os.unlink(file)
            elif file.suffix == ".json":
                found.append(Encoding(**json.loads(file.read_text())))
    return sorted((one for one in found if one.tenant_id == tenant_id), key=lambda one: one.began_at, reverse=True)


def _folder(settings: Settings) -> Path:
    return settings.data_dir / "encoding"
