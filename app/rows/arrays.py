"""The arrays of an npz file, so many rows at a time, none of them ever whole in memory or in clear on a disk.

What is damaged is an error, of whatever class; the caller refuses the file for any.
"""

import io
import math
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from app.vault import spool
from lethe.contract.problems import InputInvalid

_PIECE = 2**20  # bytes that are read at once
_HEADER = 1024  # bytes; that of a plain array takes 128
_TURNED_VALUES = 2**23  # of an array that is stored column by column, in memory at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declaration of a member of the file, and where in it the numbers start."""

    member: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    start: int


class ShortReads(io.BufferedReader):
    """A file that is never read by more than a piece at once: a zip file tells how long its list of members is."""

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(_PIECE + 1 if size is None or size < 0 else min(size, _PIECE + 1))
        if len(piece) > _PIECE:
            raise zipfile.BadZipFile
        return piece


def is_plain(member: zipfile.ZipInfo) -> bool:
    """Return True if the member is no link, is not encrypted, and can be unpacked piece by piece."""
    linked = stat.S_ISLNK(member.external_attr >> 16)
    return (
        not linked and not member.flag_bits & 1 and member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    )


def declared(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Declared:
    """Read the header of the member, which must fit the member's size."""
    with archive.open(member) as stream:
        header = io.BytesIO(stream.read(_HEADER))
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[np.lib.format.read_magic(header)]
    shape, by_columns, dtype = read_header(header)
    num_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or header.tell() + num_bytes != member.file_size:
        raise InputInvalid("The arrays of an npz file hold plain numbers and strings, as many as they declare.")
    return Declared(member=member, shape=shape, dtype=dtype, by_columns=by_columns, start=header.tell())


def rows(archive: zipfile.ZipFile, array: Declared, most: int, folder: Path) -> Iterator[npt.NDArray[Any]]:
    """The rows of the array, `most` at a time. One that is stored column by column is spooled in `folder`."""
    if array.by_columns and len(array.shape) > 1:
        return _turned(archive, array, most, folder)
    return _as_stored(archive, array, most)


def _as_stored(archive: zipfile.ZipFile, array: Declared, most: int) -> Iterator[npt.NDArray[Any]]:
    num_rows, *inner = array.shape
    with archive.open(array.member) as stream:
        _exactly(stream, array.start)
        for start in range(0, num_rows, most):
            shape = (min(most, num_rows - start), *inner)
            yield np.ndarray(shape, array.dtype, _exactly(stream, math.prod(shape) * array.dtype.itemsize))


def _turned(archive: zipfile.ZipFile, array: Declared, most: int, folder: Path) -> Iterator[npt.NDArray[Any]]:
    num_rows, num_columns = array.shape
    at_once = most * max(1, _TURNED_VALUES // (most * num_columns))
    with spool.create(folder) as unpacked:
        with archive.open(array.member) as stream:
            for start in range(0, array.member.file_size, _PIECE):
                unpacked.write(_exactly(stream, min(_PIECE, array.member.file_size - start)))
        for start in range(0, num_rows, at_once):
            block = np.empty((min(at_once, num_rows - start), num_columns), array.dtype, order="F")
            for column in range(num_columns):
                unpacked.seek(array.start + (column * num_rows + start) * array.dtype.itemsize)
                unpacked.readinto(block[:, column].view(np.uint8).data)
            for first in range(0, len(block), most):
                yield block[first : first + most]


def _exactly(stream: IO[bytes], num_bytes: int) -> bytearray:
    """No more is ever unpacked."""
    content = bytearray()
    while len(content) < num_bytes:
        piece = stream.read(min(_PIECE, num_bytes - len(content)))
        if not piece:
            raise zipfile.BadZipFile
        content += piece
    return content
