"""Limits on the process in which a public network runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the memory of a network's process, its seconds per batch, and the size of the network's file.

    The defaults are the gateway's limits.
    """

    memory_bytes: int = 4 * 2**30
    seconds: float = 60.0
    file_bytes: int = 256 * 2**20
