"""Progress of uploads whose rows a network is encoding, visible to callers of any gateway on the same data folder.

Each upload has a file that is updated about once a second and removed once the rows are encoded. It contains counts and
IDs, and no part of a row. A file that is no longer updated was left behind by a gateway that ended.
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
_ABANDONED_SECONDS = 120.0
"""Seconds, beyond the time a network may take for a batch, after which a file without updates counts as abandoned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Upload whose rows are being encoded.

    `name` is the name of the future dataset, or the ID of the dataset that receives the rows. `num_bytes` and
    `num_rows` describe the uploaded file; `num_rows` is None until known.
    """

    tenant_id: str
    name: str
    network_id: str
    num_bytes: int
    num_encoded: int = 0
    num_rows: int | None = None
    began_at: str


class Meter:
    """Writer of an upload's progress file."""

    def __init__(self, file: Path, encoding: Encoding) -> None:
        self._file = file
        self._encoding = encoding
        self._written = -_RENEWED_SECONDS

    def advance(self, num_encoded: int, num_rows: int | None) -> None:
        """Record that `num_encoded` rows have been encoded so far."""
        self._encoding = replace(self._encoding, num_encoded=num_encoded, num_rows=num_rows)
        if num_encoded == num_rows or time.monotonic() >= self._written + _RENEWED_SECONDS:
            self._written = time.monotonic()
            self._write()

    def _write(self) -> None:
        half = self._file.with_suffix(".half")
        # An upload goes on if its progress cannot be written.
        with contextlib.suppress(OSError):
            half.write_text(json.dumps(asdict(self._encoding)))
            half.replace(self._file)


@contextmanager
def metered(settings: Settings, *, tenant_id: str, name: str, network_id: str, num_bytes: int) -> Iterator[Meter]:
    """List an upload as being encoded until the block ends."""
    folder = _folder(settings)
    # An upload goes on if its progress cannot be written.
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{new_id('enc')}.json"
    began_at = datetime.datetime.now(datetime.UTC).isoformat()
    encoding = Encoding(tenant_id=tenant_id, name=name, network_id=network_id, num_bytes=num_bytes, began_at=began_at)
    meter = Meter(file, encoding)
    meter.advance(0, None)
    try:
        yield meter
    finally:
        # A file that cannot be removed is removed by `listed` when it is old.
        for progress in (file, file.with_suffix(".half")):
            with contextlib.suppress(OSError):
                progress.unlink(missing_ok=True)


def listed(settings: Settings, tenant_id: str) -> list[Encoding]:
    """Return a tenant's uploads that are being encoded, newest first, and remove abandoned progress files."""
    encodings = []
    oldest = time.time() - settings.network_seconds - _ABANDONED_SECONDS
    for file in _folder(settings).glob("enc_*"):
        # An upload may have ended by now, or its file may come from another release.
        with contextlib.suppress(OSError, ValueError, TypeError):
            if file.stat().st_mtime < oldest:
                os.unlink(file)
            elif file.suffix == ".json":
                encodings.append(Encoding(**json.loads(file.read_text())))
    own = [encoding for encoding in encodings if encoding.tenant_id == tenant_id]
    return sorted(own, key=lambda encoding: encoding.began_at, reverse=True)


def _folder(settings: Settings) -> Path:
    return settings.data_dir / "encoding"
