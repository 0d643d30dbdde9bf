"""Files that are complete, or not there."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO


def write(to: str | Path | BinaryIO, pieces: Iterable[bytes]) -> None:
    """Write pieces as they come: to a file object, or to a file that is replaced when the last one is there."""
    if not isinstance(to, str | Path):
        for piece in pieces:
            to.write(piece)
        return
    path = Path(to)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
