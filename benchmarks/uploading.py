"""How long an upload takes, beside what reading the same file and writing its rows takes without a service.

Rows of 60 numbers, a label and a person each, as csv, parquet and npz, become a dataset of a real installation on
SQLite in the way of the gateway: from a spooled file, by `datasets.encode` and `datasets.register`, in a process of its
own, whose peak memory is told. The rival, in a process of its own too, has pyarrow (csv, parquet) or numpy (npz) read
the same file, all of it into memory, and writes the numbers as float32 with numpy, synced: no check of a value, nothing
sealed, and nothing about whose a row is. So the aim is half its speed.

Prints a table, and where the time of the service goes: `database` is the transaction in which it says whose the rows
are, for which nobody else can write. Writes benchmarks/results/uploading.json. With --rows so many, with --kinds so
few, with --quick 20,000 rows, elsewhere (build/evidence).
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from app import installations
from app.access.service import DEFAULT_TENANT
from app.catalogue import datasets
from app.config import Settings
from app.db import Actor
from app.deletion import search_repository
from app.rows import formats, ingest
from app.rows.uploads import RowUpload, Shuffle, Suppressed
from app.vault import store
from app.vault.sealing import SealedStore
from benchmarks import page
from lethe.encoding.schema import parse_schema

FEATURES = 60
KINDS: tuple[formats.Kind, ...] = ("csv", "parquet", "npz")
CLASSES = ("no", "yes")
_BESIDE = "sealing, in threads"
_AT_ONCE = 100_000
_COPIED = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--quick", action="store_true", help="20,000 rows; results go to build/evidence")
    parser.add_argument("--alone", nargs=3, metavar=("WHO", "FILE", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        who, file, folder = arguments.alone
        print(json.dumps((_service if who == "service" else _rival)(Path(file), Path(folder))))
        return
    console, machine = Console(width=150), page.machine()
    found = [
        {"rows": rows, "kind": kind, **_measured(rows, kind)}
        for rows in ([20_000] if arguments.quick else arguments.rows)
        for kind in arguments.kinds
    ]
    _print(console, found)
    written = {"machine": machine, "features": FEATURES, "uploads": found}
    page.write("uploading", written, page.SCRATCH if arguments.quick else page.RESULTS)


def _measured(rows: int, kind: formats.Kind) -> dict[str, Any]:
    """Of one file, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="lethe-bench-"))
    try:
        file = folder / f"rows.{kind}"
        _write(file, rows)
        measured = {}
        for who in ("rival", "service"):
            (folder / who).mkdir()
            command = [sys.executable, "-m", "benchmarks.uploading", "--alone", who, str(file), str(folder / who)]
            ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            measured[who] = json.loads(ended.stdout.splitlines()[-1])
            shutil.rmtree(folder / who)
        ratio = measured["service"]["seconds"] / measured["rival"]["seconds"]
        return {"file_bytes": file.stat().st_size, **measured, "times_the_rival": ratio}
    finally:
        shutil.rmtree(folder)


def _print(console: Console, found: list[dict[str, Any]]) -> None:
    table = Table("rows", "file", "rival", "service", "times", "peak memory", "where the time of the service goes")
    for one in found:
        service, split = one["service"], one["service"]["split"]
        table.add_row(
            f"{one['rows']:,}",
            one["kind"],
            f"{one['rival']['seconds']:.2f} s",
            f"{service['seconds']:.2f} s",
            f"{one['times_the_rival']:.1f}",
            f"{service['peak_bytes'] / 2**20:.0f} MiB (rival {one['rival']['peak_bytes'] / 2**20:.0f})",
            ", ".join(f"{name} {seconds:.2f}" for name, seconds in split.items())
            + f"; {_BESIDE}: {service[_BESIDE]:.2f}",
        )
    console.print(table)


# --- the files -------------------------------------------------------------------------------------------------------


def _write(file: Path, rows: int) -> None:
    """Made-up people: the same ones each time."""
    if file.suffix == ".npz":
        x, y, subject = zip(*_people(rows), strict=True)
        np.savez(file, x=np.concatenate(x), y=np.concatenate(y), subject=np.concatenate(subject))
        return
    writer: Any = None
    for x, y, subject in _people(rows):
        columns = {f"x{column}": x[:, column] for column in range(FEATURES)}
        table = pa.table({**columns, "label": np.array(CLASSES)[y], "person": subject})
        if writer is None:
            opened = pq.ParquetWriter if file.suffix == ".parquet" else pyarrow.csv.CSVWriter
            writer = opened(file, table.schema)
        writer.write_table(table)
    writer.close()


def _people(rows: int) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    generator = np.random.default_rng(0)
    for start in range(0, rows, _AT_ONCE):
        number = min(_AT_ONCE, rows - start)
        x = generator.integers(0, 10_000, size=(number, FEATURES)) / 10_000
        subject = np.array([f"person-{row:08}" for row in range(start, start + number)])
        yield x, (x[:, 0] > 0.5).astype(np.int64), subject


# --- both, each in a process of its own ------------------------------------------------------------------------------


def _warm() -> None:
    """The first array that pyarrow hands to numpy has it load pandas, where that is installed: a second, once."""
    np.asarray(pa.array([1.0, None]))


def _rival(file: Path, folder: Path) -> dict[str, Any]:
    _warm()
    began = time.perf_counter()
    names = [f"x{column}" for column in range(FEATURES)]
    if file.suffix == ".npz":
        rows = np.load(file)["x"].astype(np.float32)
    else:
        table = pq.read_table(file) if file.suffix == ".parquet" else pyarrow.csv.read_csv(file)
        rows = np.column_stack([table[name].to_numpy() for name in names]).astype(np.float32)
    with (folder / "rows").open("wb") as written:
        rows.tofile(written)
        os.fsync(written.fileno())
    return {"seconds": time.perf_counter() - began, "peak_bytes": _peak()}


def _service(file: Path, folder: Path) -> dict[str, Any]:
    _warm()
    settings = Settings(data_dir=folder / "data")
    installations.set_up(settings)
    columns: dict[str, Any] = {f"x{column}": {"kind": "numeric", "min": 0, "max": 1} for column in range(FEATURES)}
    columns |= {"label": {"role": "label", "values": list(CLASSES)}, "person": {"role": "subject"}}
    kind = ingest.kind_of(file.name)
    with installations.opened(settings) as installation, store.create(settings.data_dir) as spooled:
        with file.open("rb") as given:
            shutil.copyfileobj(given, spooled, _COPIED)
        spooled.seek(0)
        actor = Actor(tenant_id=DEFAULT_TENANT, name="benchmark")

        def among(references: Any) -> set[str]:
            with installation.database.reading(by=actor) as session:
                return search_repository.suppressed_people(session, search_repository.ANYWHERE, references)

        upload = RowUpload(
            file=spooled,
            folder=settings.data_dir,
            kind=kind,
            schema=None if kind == "npz" else parse_schema({"columns": columns}),
            classes=CLASSES,
            max_bytes=4 * settings.max_upload_bytes,
            subject_refs=functools.partial(installation.keys.subject_refs, DEFAULT_TENANT),
        )
        with _timed(upload, Suppressed(among=among, skip=False)) as (split, upload, suppressed):
            began = time.perf_counter()
            encoded = datasets.encode(installation.rows, upload, suppressed=suppressed)
            registering = time.perf_counter()
            with installation.database.writing(by=actor) as session:
                datasets.register(session, name="rows", encoded=encoded)
            ended = time.perf_counter()
    beside = split.pop(_BESIDE)
    split["database"] = ended - registering
    split["the rest"] = ended - began - sum(split.values())
    return {"seconds": ended - began, "split": split, _BESIDE: beside, "peak_bytes": _peak()}


@contextlib.contextmanager
def _timed(upload: RowUpload, suppressed: Suppressed) -> Iterator[tuple[dict[str, float], RowUpload, Suppressed]]:
    """Seconds in the parts of an upload that follow each other; and those of the threads that seal, beside them."""
    split: dict[str, float] = {}

    def function(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                split[name] = split.get(name, 0.0) + time.perf_counter() - began

        return timed

    def generator(name: str, call: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def timed(*given: Any, **named: Any) -> Iterator[Any]:
            items = call(*given, **named)
            advance = function(name, lambda: next(items, None))
            while (item := advance()) is not None:
                yield item

        return timed

    with contextlib.ExitStack() as stack:
        for name, owner, attribute, wrap in (
            ("read and encode", ingest, "read", generator),
            ("shuffle", Shuffle, "add", function),
            ("shuffle", Shuffle, "shuffled", generator),
            (_BESIDE, SealedStore, "put", function),
        ):
            stack.enter_context(mock.patch.object(owner, attribute, wrap(name, getattr(owner, attribute))))
        yield (
            split,
            dataclasses.replace(upload, subject_refs=function("references", upload.subject_refs)),
            dataclasses.replace(suppressed, among=function("who is suppressed", suppressed.among)),
        )


def _peak() -> int:
    """Bytes of memory that were in use at most, since the process began."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines["VmHWM"].split()[0])


if __name__ == "__main__":
    main()
