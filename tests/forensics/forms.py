"""The forms in which a text, some bytes or some numbers may be written, searched for besides the bytes themselves.

Each form is a name and a pattern. Patterns are windows of a few bytes, so that a page boundary does not hide all of
them."""

import base64
import hashlib
import json
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Patterns = dict[str, bytes]

MIN_BYTES = 7
"""Minimum number of bytes of a pattern: a shorter one would be found anywhere."""
_WINDOW = 24


def of_text(name: str, text: str) -> Patterns:
    """Return the forms in which a program may write a text, including within a URL, within JSON, and within JSON inside
    JSON."""
    as_json = json.dumps(text)[1:-1]
    written = {
        "utf-8": text,
        "lower case": text.lower(),
        "upper case": text.upper(),
        "JSON": as_json,
        "JSON in JSON": json.dumps(as_json)[1:-1],
        "address": urllib.parse.quote(text, safe=""),
        "path": urllib.parse.quote(text),
        "form": urllib.parse.quote_plus(text),
    }
    patterns: Patterns = {}
    for way, one in written.items():
        for at, window in _windows(one.encode()):
            patterns[f"{name}, {way} at {at}"] = window
    patterns[f"{name}, address in lower case"] = _middle(_lower_escapes(written["address"]).encode())
    encodings = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4}
    if max(map(ord, text), default=0) < 256:
        encodings["latin-1"] = 1  # as Python keeps it in memory
    for encoding, width in encodings.items():
        for at, window in _windows(text.encode(encoding), width * _WINDOW):
            patterns[f"{name}, {encoding} at {at}"] = window
    patterns |= of_bytes(name, text.encode()) | of_bytes(f"{name}, JSON", as_json.encode())
    return _distinct(patterns)


def of_guess(name: str, text: str) -> Patterns:
    """Return the unkeyed hashes with which an attacker could confirm a guess of the text."""
    patterns: Patterns = {}
    for kind in ("sha256", "sha1", "md5"):
        patterns |= of_bytes(f"{name}, {kind}", hashlib.new(kind, text.encode()).digest())
    return patterns


def of_bytes(name: str, content: bytes) -> Patterns:
    """Return patterns of the bytes themselves, in base64 at every offset, in hex, and as PostgreSQL compresses them."""
    patterns = {f"{name}, bytes at {at}": window for at, window in _windows(content)}
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + content)
        inside = encoded[4 if before else 0 : (before + len(content)) // 3 * 4]  # regardless of adjacent bytes
        patterns[f"{name}, base64 after {before}"] = _middle(inside, 2 * _WINDOW)
        urlsafe = inside.translate(bytes.maketrans(b"+/", b"-_"))
        patterns[f"{name}, urlsafe base64 after {before}"] = _middle(urlsafe, 2 * _WINDOW)
    patterns[f"{name}, hex"] = _middle(content).hex().encode()
    patterns[f"{name}, HEX"] = _middle(content).hex().upper().encode()
    patterns |= {f"{name}, pglz in phase {phase}": one for phase, one in enumerate(_in_pglz(content))}
    return _distinct(patterns)


def of_numbers(name: str, values: "NDArray[Any] | Sequence[float]") -> Patterns:
    """Return patterns of pairs of adjacent numbers, in float64 and float32 and in both byte orders."""
    row = np.asarray(values, dtype=np.float64).ravel()
    patterns: Patterns = {}
    for kind in ("<f8", ">f8", "<f4", ">f4"):
        content = row.astype(kind)
        for at in range(len(row) - 1):
            if row[at : at + 2].all():
                patterns[f"{name}[{at}], {kind}"] = content[at : at + 2].tobytes()
    for kind in ("<f8", "<f4"):
        patterns |= of_bytes(f"{name}, {kind}", row.astype(kind)[:6].tobytes())
    return _distinct(patterns)


def of_number(name: str, value: float) -> Patterns:
    """Return patterns of a single number, in bytes and in digits. Its 53 bits distinguish it from all other numbers."""
    patterns = {f"{name}, {kind}": np.asarray(value, dtype=kind).tobytes() for kind in ("<f8", ">f8")}
    return patterns | of_text(f"{name} in digits", repr(float(value)))


def _windows(content: bytes, length: int = _WINDOW) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the bytes of windows at the beginning, the middle and the end."""
    last = max(0, len(content) - length)
    for at in sorted({0, last // 2, last}):
        yield at, content[at : at + length]


def _middle(content: bytes, length: int = _WINDOW) -> bytes:
    start = max(0, (len(content) - length) // 2)
    return content[start : start + length]


def _in_pglz(content: bytes) -> Iterator[bytes]:
    """Yield the forms of incompressible content in pglz, which inserts a zero control byte after every eight literal
    bytes."""
    window = _middle(content, 18)
    if len(window) < 10:
        return
    for phase in range(8):
        eights = [window[start : start + 8] for start in range(phase, len(window) - 7, 8)]
        yield b"\0".join([window[:phase], *eights]).strip(b"\0")


def _lower_escapes(address: str) -> str:
    parts = address.split("%")
    return "%".join([parts[0], *(part[:2].lower() + part[2:] for part in parts[1:])])


def _distinct(patterns: Patterns) -> Patterns:
    """Return the patterns that are long enough, each only once, under its first name."""
    first: dict[bytes, str] = {}
    for name, pattern in patterns.items():
        if len(pattern) >= MIN_BYTES:
            first.setdefault(pattern, name)
    return {name: pattern for pattern, name in first.items()}
