"""Limits of the process in which a public network runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Maximum memory of a network's process, maximum seconds for a batch, and maximum size of the network's file.

    The defaults are the limits of a gateway.
    """

    memory_bytes: int = 4 * 2**30
    seconds: float = 60.0
    file_bytes: int = 256 * 2**20
