"""Every file below some folders, searched like an examiner with the disks would.

It cannot find content that was encrypted or hashed under a key, as intended; blocks of the device that no file has any
more, old copies in the device or a snapshot, and swap; content in which every window of a pattern is split or replaced
by a back reference (`forms`); and values of fewer bytes than a pattern has."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.forensics import containers, memory
from tests.forensics.finder import Finder

Residue = dict[str, Counter[str]]
"""Number of occurrences of each pattern by place; empty if nothing is found."""

_WAL_PAGE = 8192


def folders(paths: Iterable[Path], finder: Finder) -> Residue:
    """Search all files below `paths`, including their names and their compressed content."""
    residue: Residue = {}
    for _ in searched(everything(paths), finder, residue):
        pass
    return residue


def everything(paths: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield the place and content of each file below `paths`, and of each container in it. Unpacking takes longer than
    any search, so one pass serves all searches."""
    return (one for path in files(paths) for one in contents(path))


def searched(named: Iterable[tuple[str, bytes]], finder: Finder, residue: Residue) -> Iterator[tuple[str, bytes]]:
    """Yield the files unchanged, and add what `finder` finds in their names or contents to `residue`."""
    for place, content in named:
        if found := finder.found(os.fsencode(place) + b"\n" + content):
            residue.setdefault(place, Counter()).update(found)
        yield place, content


def held_open(pid: int, finder: Finder) -> Residue:
    """Search the files that a process has open, including unlinked ones."""
    residue: Residue = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(path)
            if path.is_file() and (found := finder.found(path.read_bytes())):
                residue[f"{name} of process {pid}"] = found
        except OSError:  # closed in the meantime, or not a readable file
            continue
    return residue


def memory_of(pid: int, finder: Finder) -> Residue:
    """Search the memory of a live process."""
    residue: Residue = {}
    for hit in memory.find(pid, finder):
        residue.setdefault(f"{hit.mapping or 'memory'} of process {pid}", Counter())[hit.name] += 1
    return residue


def texts(named: Iterable[tuple[str, bytes]], finder: Finder) -> Residue:
    """Search texts, such as those that `stores` reads from stores."""
    residue: Residue = {}
    for name, content in named:
        if found := finder.found(content):
            residue.setdefault(name, Counter()).update(found)
    return residue


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield all files at or below the paths. The paths must exist, because searching a folder that was moved would find
    nothing."""
    for top in paths:
        assert top.exists(), top
        if not top.is_dir():
            yield top
        for folder, _, names in os.walk(top):
            yield from (Path(folder) / name for name in names)


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the content of a file and of the containers in it, or nothing if the file has been deleted in the
    meantime."""
    try:
        content = path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:
        return
    yield str(path), content
    if path.parent.name == "pg_wal":
        content = _without_page_headers(content)
        yield f"{path}, without page headers", content
    for kind, inside in containers.unpacked(content):
        yield f"{path}, {kind}", inside


def _without_page_headers(segment: bytes) -> bytes:
    """Return the records in a segment of PostgreSQL's write-ahead log without page headers, which take 40 bytes on the
    first page and 24 bytes on every other page."""
    pages = (segment[start : start + _WAL_PAGE] for start in range(0, len(segment), _WAL_PAGE))
    return b"".join(page[40 if number == 0 else 24 :] for number, page in enumerate(pages))
