"""Fixtures of the chain: rows and noise that can be drawn again."""

from tests.worker.langevin.conftest import random_rows, replayable_noise, settings, silent_noise

__all__ = ["random_rows", "replayable_noise", "settings", "silent_noise"]
