"""Reasons for leaving: answers that people randomise themselves, and that are counted instead of stored."""
