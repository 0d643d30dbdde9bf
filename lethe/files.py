"""Long answers, written to a file that is complete, or not there."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def opened(to: str | Path | BinaryIO) -> Iterator[BinaryIO]:
    """The file object that is given, or a new file that takes the place of the one that is named, once all is there."""
    if not isinstance(to, str | Path):
        yield to
        return
    path = Path(to)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def write(to: str | Path | BinaryIO, pieces: Iterable[bytes]) -> None:
    """Write pieces as they come."""
    with opened(to) as file:
        for piece in pieces:
            file.write(piece)
