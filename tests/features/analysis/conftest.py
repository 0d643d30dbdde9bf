"""Fixtures of the proofs, with which the mathematics of theorems is tested alike."""

from tests.lethe.proof.conftest import digits

__all__ = ["digits"]
