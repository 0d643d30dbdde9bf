"""Reasons for leaving, randomised where people give them: `randomise("cost")` (see `lethe.features.leaving`)."""

from lethe.features.leaving.local import ODDS, REASONS, RandomisedAnswer, randomise

__all__ = ["ODDS", "REASONS", "RandomisedAnswer", "randomise"]
