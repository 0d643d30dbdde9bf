"""Fixtures of the chain: reproducible rows and noise."""

from tests.worker.langevin.conftest import random_rows, replayable_noise, settings, silent_noise

__all__ = ["random_rows", "replayable_noise", "settings", "silent_noise"]
