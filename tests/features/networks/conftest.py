"""Fixtures of networks: a scripted server, a client of it, and rows and noise of the chain."""

from tests.lethe.conftest import script, scripted_client
from tests.worker.langevin.conftest import random_rows, replayable_noise

__all__ = ["random_rows", "replayable_noise", "script", "scripted_client"]
