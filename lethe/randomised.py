"""Reasons for leaving, randomised on the person's own device: `randomise("cost")` (see `lethe.features.leaving`)."""

from lethe.features.leaving.randomised import ODDS, REASONS, RandomisedAnswer, randomise  # type: ignore[import-not-found, unused-ignore]

__all__ = ["ODDS", "REASONS", "RandomisedAnswer", "randomise"]
