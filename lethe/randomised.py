"""Reasons for leaving, randomised on the person's own device: `randomise("cost")` (see `lethe.features.leaving`)."""

from lethe.features.leaving.randomised import (  # type: ignore[import-not-found, unused-ignore]
    ODDS,
    REASONS,
    RandomisedAnswer,
    randomise,
)

__all__ = ["ODDS", "REASONS", "RandomisedAnswer", "randomise"]
