"""Fixtures of networks: a server that answers by a script, a client beside it, and rows and noise of the chain."""

from tests.lethe.conftest import script, scripted_client
from tests.worker.langevin.conftest import random_rows, replayable_noise

__all__ = ["random_rows", "replayable_noise", "script", "scripted_client"]
