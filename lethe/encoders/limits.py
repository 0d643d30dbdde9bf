"""The most that a public network may take of the machine on which it runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most memory (bytes) that the process of a network may take, seconds for each batch, and bytes of its file; as
    a gateway has them by default."""

    memory_bytes: int = 4 * 2**30
    seconds: float = 60.0
    file_bytes: int = 256 * 2**20
