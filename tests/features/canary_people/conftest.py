"""Fixtures: tables and trainers, and the command line."""

from tests.command_line import lethe
from tests.features.trainers.conftest import new_table, new_trainer, train

__all__ = ["lethe", "new_table", "new_trainer", "train"]
