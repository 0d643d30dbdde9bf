"""Hooks of the `canary_tests` feature."""

from app.features.canary_tests.service import CanaryTest
from app.unlearning.kinds import AskedKind

ASKED_KINDS: tuple[AskedKind, ...] = (CanaryTest(),)
