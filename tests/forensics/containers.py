"""Open content packed in a file: zip and npz, gzip, zlib, Parquet, strings of a Redis dump, base64.

Containers are carved by their signatures wherever they begin, whole or truncated, so a container within a page of a
database, a message of a broker or the free space of a file is opened too."""

import base64
import contextlib
import io
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

_MAX_BYTES = 64 * 2**20
"""Maximum number of bytes that one container is unpacked to."""
_DEEPEST = 3

_BETWEEN = bytes(64)

_ZIP, _PARQUET, _REDIS = b"PK\x03\x04", b"PAR1", b"REDIS"
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{40,}")
_STANDARD = bytes.maketrans(b"-_", b"+/")
_DEFLATED = re.compile(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]")


def unpacked(content: bytes, *, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield the kind of each container in `content` and the joined content of all containers of that kind, including
    nested containers."""
    if depth < _DEEPEST:
        together: dict[str, list[bytes]] = defaultdict(list)
        for kind, inside in _carved(content):
            together[kind].append(inside)
        for kind, parts in together.items():
            if inside := _BETWEEN.join(part for part in parts if part):
                yield kind, inside
                for deeper, rest in unpacked(inside, depth=depth + 1):
                    yield f"{deeper} in {kind}", rest


def _carved(content: bytes) -> Iterator[tuple[str, bytes]]:
    for found in _DEFLATED.finditer(content):
        yield "deflate", _inflated(content, found.start(), zlib.MAX_WBITS | 32)
    for at in _places(content, _ZIP):
        yield "zip", _member(content, at)
    for at in _places(content, _PARQUET):
        yield from (("parquet", column) for column in _columns(content, at))
    for found in _BASE64.finditer(content):
        text = found.group().translate(_STANDARD)
        for start in range(4):
            yield "base64", base64.b64decode(text[start : start + (len(text) - start) // 4 * 4])
    if content.startswith(_REDIS):
        yield from (("lzf", text) for text in _lzf_texts(content))


def _places(content: bytes, signature: bytes) -> Iterator[int]:
    at = content.find(signature)
    while at >= 0:
        yield at
        at = content.find(signature, at + 1)


def _inflated(content: bytes, at: int, window: int) -> bytes:
    """Return the inflated bytes up to the end of the stream or the first error."""
    stream, parts = zlib.decompressobj(window), []
    with contextlib.suppress(zlib.error):
        view = memoryview(content)
        for start in range(at, len(content), 2**12):  # small pieces, so that an error loses little
            parts.append(stream.decompress(view[start : start + 2**12], _MAX_BYTES))
            if stream.eof or sum(map(len, parts)) > _MAX_BYTES:
                break
    return b"".join(parts)


def _member(content: bytes, at: int) -> bytes:
    """Return the inflated content of the zip member at `at`; empty if the member is not compressed."""
    header = content[at : at + 30]
    if len(header) < 30 or struct.unpack_from("<H", header, 8)[0] != 8:
        return b""
    return _inflated(content, at + 30 + sum(struct.unpack_from("<HH", header, 26)), -zlib.MAX_WBITS)


def _columns(content: bytes, at: int) -> Iterator[bytes]:
    """Yield the buffers of the Parquet file that begins at `at`, trying each possible end."""
    for end in _places(content, _PARQUET):
        if end <= at:
            continue
        with contextlib.suppress(OSError, pa.ArrowException):
            table = pq.ParquetFile(pa.BufferReader(content[at : end + 4])).read()
            for column in table.columns:
                for chunk in column.chunks:
                    yield from (buffer.to_pybytes() for buffer in chunk.buffers() if buffer)
            return


def _lzf_texts(content: bytes) -> Iterator[bytes]:
    """Yield the content of each possible compressed string of a Redis dump: 0xC3, two lengths, the string."""
    for found in re.finditer(rb"\xc3", content):
        packed, after = _length(content, found.end())
        whole, start = _length(content, after)
        if 4 < packed < whole <= _MAX_BYTES and start + packed <= len(content):
            with contextlib.suppress(ValueError):
                yield _lzf(content[start : start + packed], whole)


def _length(content: bytes, at: int) -> tuple[int, int]:
    """Return the length encoded at `at` in a Redis dump and the position after it; zero and `at` if no length is
    encoded there."""
    head = content[at : at + 5]
    if not head or head[0] >> 6 == 3:
        return 0, at
    if head[0] >> 6 == 0:
        return head[0] & 63, at + 1
    if head[0] >> 6 == 1:
        return int.from_bytes(bytes([head[0] & 63]) + head[1:2], "big"), at + 2
    return int.from_bytes(head[1:5], "big"), at + 5


def _lzf(packed: bytes, whole: int) -> bytes:
    """Unpack LZF-compressed content of `whole` bytes, or raise `ValueError` if it is malformed."""
    source, out = io.BytesIO(packed), bytearray()
    while head := source.read(1):
        if head[0] < 32:
            out += source.read(head[0] + 1)
            continue
        length = (head[0] >> 5) + 2
        if length == 9:
            length += int.from_bytes(source.read(1), "big")
        start = len(out) - ((head[0] & 31) << 8) - int.from_bytes(source.read(1), "big") - 1
        if start < 0 or len(out) + length > whole:
            raise ValueError("This is no LZF.")
        for at in range(start, start + length):
            out.append(out[at])
    if len(out) != whole:
        raise ValueError("This is no LZF.")
    return bytes(out)
